import type { Config } from '../../config/schema.ts'
import type { Decision } from '../../limit/decision.ts'
import { sweeper } from '../../limit/memory/store.ts'
import type { LoggedCall } from './access-line.ts'
import { instant } from '../../limit/instant.ts'

/** How many lines were read, and what became of them; these add up. */
export function emptyLineCounts() {
  return {
    /** Calls that were charged to limits. */
    replayed: 0,
    /** Refused by the recorded gateway before any limit, such as with 401 or 404. */
    refusedBefore: 0,
    /** Taken by no route of this configuration, or by one without limits. */
    unmatched: 0,
    unlimited: 0,
    /** Without what a limit is counted by: the client, the address, or the whole path. */
    lacking: 0,
    /** No lines of the access log, and lines too long to be. */
    other: 0,
    overlong: 0,
  }
}

/** True if a limit can be replayed: the access log names no users. */
export function isReplayable({ per }: { readonly per: readonly string[] }): boolean {
  return !per.includes('user')
}

type ByLimit = Record<string, number>

interface ClientCounts {
  readonly client: string | undefined
  readonly counts: ReturnType<typeof emptyCounts>
  /** By the limit that the 429 would name; undefined while there is none. */
  refusedBy?: ByLimit
  /** By each shadow limit that had no room. */
  shadowOver?: ByLimit
  /** The most calls within one minute, wherever it starts, and when the first of them came. */
  readonly busiest: { calls: number; fromMs: number }
}

export type Report = ReturnType<ReturnType<typeof createReport>['report']>

const MINUTE_MS = 60_000
/** Entries of idle clients that are looked for with each call. */
const SWEPT_WITH_CALL = 2
/** Times before the last minute that are dropped at once. */
const DROPPED_AT_ONCE = 1024

/** Counts calls per client; of one client alone where `only` names it. */
export function createReport({ limits, clients }: Config, only?: string) {
  const tallies = new Map<string | undefined, ClientCounts>()
  const totals = emptyCounts()
  const recordedBy: ByLimit = Object.fromEntries(limits.map(({ name }) => [name, 0]))
  const noteMinute = createBusiest()
  let span: { readonly fromMs: number; toMs: number } | undefined

  return {
    /** Calls come in the order of time. */
    note(call: LoggedCall, { refusedBy, allowances }: Decision, nowMs: number): void {
      const { client } = call
      if (only !== undefined && client !== only) return
      let tally = tallies.get(client)
      if (tally === undefined) {
        tally = { client, counts: emptyCounts(), busiest: { calls: 0, fromMs: 0 } }
        tallies.set(client, tally)
      }
      for (const counts of [totals, tally.counts]) count(counts, call.decision, refusedBy !== undefined)
      const { limit: recordedLimit = '' } = call
      if (Object.hasOwn(recordedBy, recordedLimit)) add(recordedBy, recordedLimit)
      if (refusedBy !== undefined) add((tally.refusedBy ??= {}), refusedBy.name)
      else {
        for (const { name, shadow, admitted } of allowances)
          if (shadow && !admitted) add((tally.shadowOver ??= {}), name)
      }
      noteMinute(tally, nowMs)
      span ??= { fromMs: nowMs, toMs: nowMs }
      span.toMs = nowMs
    },

    /** Sums up, with the first `top` clients. Instants are ISO 8601 in UTC. */
    report(
      config: string,
      read: {
        readonly lines: ReturnType<typeof emptyLineCounts>
        /** Calls whose lines came too late to be put in order, and by how many milliseconds at most. */
        readonly late: { calls: number; byMs: number }
        /** Refusals that the log only counts, on the line of a later one, with which they were replayed. */
        readonly omitted: number
      },
      top: number,
    ) {
      const names = new Map(clients.map(({ caller, name }) => [caller, name]))
      const sorted = [...tallies.values()].toSorted(byRefused)
      /** In the order of the configuration. */
      const byLimit = (counts: ByLimit = {}): Readonly<ByLimit> =>
        Object.fromEntries(limits.flatMap(({ name }) => (counts[name] ? [[name, counts[name]]] : [])))
      return {
        config,
        /** The first and the last call that was replayed; null where none was. */
        from: span === undefined ? null : instant(span.fromMs),
        to: span === undefined ? null : instant(span.toMs),
        ...read,
        totals: { clients: sorted.length, ...totals },
        limits: limits.map((limit) => {
          const { name, shadow } = limit
          const refusing = sorted.map(
            ({ refusedBy, shadowOver }) => (shadow ? shadowOver : refusedBy)?.[name] ?? 0,
          )
          return {
            name,
            shadow,
            /** False where the access log does not name what it is counted by. */
            replayed: isReplayable(limit),
            /** Calls refused by it, or, in shadow, that would have been; and how many clients made them. */
            refused: refusing.reduce((sum, calls) => sum + calls, 0),
            clients: refusing.filter((calls) => calls > 0).length,
            /** Calls that the recorded gateway refused by a limit of this name. */
            recordedRefused: recordedBy[name]!,
          }
        }),
        /** Those with the most refused calls first. */
        clients: sorted.slice(0, top).map(({ client, counts, refusedBy, shadowOver, busiest }) => {
          const name = names.get(client ?? '')
          return {
            /** Null for the calls without authentication. */
            client: client ?? null,
            ...(name !== undefined && { name }),
            ...counts,
            refusedBy: byLimit(refusedBy),
            shadowOver: byLimit(shadowOver),
            busiestMinute: { calls: busiest.calls, from: instant(busiest.fromMs) },
          }
        }),
        /** Clients that are not listed. */
        more: Math.max(0, sorted.length - top),
      }
    },
  }
}

/** What became of calls, as recorded and as replayed. */
function emptyCounts() {
  return {
    calls: 0,
    admitted: 0,
    refused: 0,
    /** By the recorded gateway, which may have been unable to decide. */
    recorded: { admitted: 0, refused: 0, undecided: 0 },
    /** Refused in the replay and admitted in the record, and the reverse. */
    newlyRefused: 0,
    newlyAdmitted: 0,
  }
}

function count(counts: ClientCounts['counts'], recorded: LoggedCall['decision'], refused: boolean): void {
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
  { client: a = '', counts: one }: ClientCounts,
  { client: b = '', counts: other }: ClientCounts,
): number {
  return other.refused - one.refused || other.calls - one.calls || (a < b ? -1 : 1)
}

/** Finds the busiest minute of each client exactly; keeps no times of clients that were idle for a minute. */
export function createBusiest(): (tally: Pick<ClientCounts, 'client' | 'busiest'>, nowMs: number) => void {
  /** The times of each client's calls, in order, and the index of the first within the last minute. */
  const recent = new Map<string | undefined, { readonly times: number[]; first: number }>()
  const sweep = sweeper(recent, ({ times }) => times.at(-1)! + MINUTE_MS)
  return ({ client, busiest }, nowMs) => {
    sweep(SWEPT_WITH_CALL, nowMs)
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
