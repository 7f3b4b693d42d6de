import type { Config } from '../../config/compile.ts'
import type { Decision } from '../../limit/decision.ts'
import { instant } from '../../limit/instant.ts'
import type { Limit } from '../../limit/limit.ts'
import { claimsOf } from '../../limit/rules/conditions.ts'
import { sweeper } from '../../limit/memory/store.ts'
import type { LoggedCall } from './logs.ts'

/** Returns zeroed counts of log lines by outcome. Each line is counted once. */
export const emptyLineCounts = () => ({
  replayed: 0,
  /** Refused by the recorded gateway before any limit, such as with 401 or 404. */
  refusedBefore: 0,
  /** Calls that match no route, and calls of a route without limits. */
  unmatched: 0,
  unlimited: 0,
  /** Lines that lack the client, the address or the whole path that a limit counts by. */
  lacking: 0,
  other: 0,
  overlong: 0,
})

type LineCounts = ReturnType<typeof emptyLineCounts>

/** Returns zeroed counts of calls, as recorded and as replayed. */
const emptyCounts = () => ({
  calls: 0,
  admitted: 0,
  refused: 0,
  recorded: { admitted: 0, refused: 0, undecided: 0 },
  /** Refused in the replay and admitted in the record, and the reverse. */
  newlyRefused: 0,
  newlyAdmitted: 0,
})

type ByLimit = Record<string, number>

const emptyClient = (client: string | undefined) => ({
  client,
  counts: emptyCounts(),
  /** Refusals by the limit that the 429 would name, and by each full shadow limit. */
  refusedBy: {} as ByLimit,
  shadowOver: {} as ByLimit,
  /** Maximum number of calls within 60 seconds, and the time of the first of them. */
  busiest: { calls: 0, fromMs: 0 },
})
type ClientCounts = ReturnType<typeof emptyClient>

export type Report = ReturnType<ReturnType<typeof createReport>['report']>

const MINUTE_MS = 60_000
/** Clients that are checked for idleness with each call. */
const SWEPT_PER_CALL = 2
/** Minimum number of expired times that are dropped at once. */
const DROPPED_AT_ONCE = 1024

/** Returns what a limit reads that the access log does not contain; undefined if it can be replayed. */
export function unloggedBy(limit: Limit): 'users' | 'tokens' | 'claims' | 'header fields' | undefined {
  const { per, together, when = [], unless = [] } = limit
  if (claimsOf([limit]).length > 0) return 'claims'
  if (per.includes('token') || together === 'token') return 'tokens'
  const readsHeader = [...when, ...unless].some(({ of }) => of === 'header')
  if (readsHeader || per.some((part) => part.startsWith('header:'))) return 'header fields'
  return per.includes('user') ? 'users' : undefined
}

/** Counts calls per client; with `only`, the calls of that client. */
export function createReport({ limits, clients }: Config, only?: string) {
  const byClient = new Map<string | undefined, ClientCounts>()
  const totals = emptyCounts()
  const recordedBy: ByLimit = Object.fromEntries(limits.map(({ name }) => [name, 0]))
  const updateBusiest = createBusiest()
  let span: { readonly fromMs: number; toMs: number } | undefined

  return {
    /** Counts a call; calls come in the order of time. */
    count({ client, decision: recorded, limit }: LoggedCall, decision: Decision, nowMs: number): void {
      if (only !== undefined && client !== only) return
      let entry = byClient.get(client)
      if (entry === undefined) byClient.set(client, (entry = emptyClient(client)))
      const { refusedBy, allowances } = decision
      for (const counts of [totals, entry.counts]) addCall(counts, recorded, refusedBy !== undefined)
      if (limit !== undefined && Object.hasOwn(recordedBy, limit)) add(recordedBy, limit)
      if (refusedBy !== undefined) add(entry.refusedBy, refusedBy.name)
      else
        for (const { name, shadow, admitted } of allowances)
          if (shadow && !admitted) add(entry.shadowOver, name)
      updateBusiest(entry, nowMs)
      span ??= { fromMs: nowMs, toMs: nowMs }
      span.toMs = nowMs
    },

    /** Returns the report with the first `top` clients. Instants are ISO 8601 in UTC. */
    report(
      config: string,
      read: { lines: LineCounts; late: { calls: number; byMs: number }; omitted: number },
      top: number,
    ) {
      const names = new Map(clients.map(({ caller, name }) => [caller, name]))
      const sorted = [...byClient.values()].toSorted(byRefused)
      const inOrder = (counts: ByLimit): Readonly<ByLimit> =>
        Object.fromEntries(limits.flatMap(({ name }) => (counts[name] ? [[name, counts[name]]] : [])))
      return {
        config,
        from: span === undefined ? null : instant(span.fromMs),
        to: span === undefined ? null : instant(span.toMs),
        ...read,
        totals: { clients: sorted.length, ...totals },
        limits: limits.map((limit) => {
          const { name, shadow } = limit
          const unlogged = unloggedBy(limit)
          const counts = sorted.map((entry) => (shadow ? entry.shadowOver : entry.refusedBy)[name] ?? 0)
          return {
            name,
            shadow,
            replayed: unlogged === undefined,
            /** The parts it reads that the log does not contain. */
            ...(unlogged && { unlogged }),
            /** Calls that it refused, or would have refused as a shadow limit, and their clients. */
            refused: counts.reduce((sum, calls) => sum + calls, 0),
            clients: counts.filter((calls) => calls > 0).length,
            /** Calls that the recorded gateway refused by a limit of this name. */
            recordedRefused: recordedBy[name]!,
          }
        }),
        clients: sorted.slice(0, top).map(({ client, counts, refusedBy, shadowOver, busiest }) => {
          const name = names.get(client ?? '')
          return {
            /** Null for the calls without authentication. */
            client: client ?? null,
            ...(name !== undefined && { name }),
            ...counts,
            refusedBy: inOrder(refusedBy),
            shadowOver: inOrder(shadowOver),
            busiestMinute: { calls: busiest.calls, from: instant(busiest.fromMs) },
          }
        }),
        more: Math.max(0, sorted.length - top),
      }
    },
  }
}

function addCall(counts: ClientCounts['counts'], recorded: LoggedCall['decision'], refused: boolean): void {
  counts.calls++
  counts[refused ? 'refused' : 'admitted']++
  counts.recorded[recorded ?? 'undecided']++
  if (refused && recorded === 'admitted') counts.newlyRefused++
  if (!refused && recorded === 'refused') counts.newlyAdmitted++
}

function add(counts: ByLimit, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1
}

function byRefused(
  { client: a = '', counts }: ClientCounts,
  { client: b = '', ...other }: ClientCounts,
): number {
  const { refused, calls } = other.counts
  return refused - counts.refused || calls - counts.calls || (a < b ? -1 : 1)
}

/** Finds the exact busiest minute of each client; keeps no times of clients that were idle for a minute. */
export function createBusiest(): (entry: Pick<ClientCounts, 'client' | 'busiest'>, nowMs: number) => void {
  /** The times of each client's calls, in order, and the index of the first one within the last minute. */
  const recent = new Map<string | undefined, { readonly times: number[]; first: number }>()
  const sweep = sweeper(recent, ({ times }) => times.at(-1)! + MINUTE_MS)
  return ({ client, busiest }, nowMs) => {
    sweep(SWEPT_PER_CALL, nowMs)
    let own = recent.get(client)
    if (own === undefined) recent.set(client, (own = { times: [], first: 0 }))
    const { times } = own
    times.push(nowMs)
    while (times[own.first]! <= nowMs - MINUTE_MS) own.first++
    if (own.first >= DROPPED_AT_ONCE && own.first * 2 >= times.length) {
      times.splice(0, own.first)
      own.first = 0
    }
    const calls = times.length - own.first
    if (calls > busiest.calls) Object.assign(busiest, { calls, fromMs: times[own.first]! })
  }
}
