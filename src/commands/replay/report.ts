import type { Config } from '../../config/config.ts'
import type { Decision } from '../../limit/decision.ts'
import { instant } from '../../runtime/instant.ts'
import type { Limit } from '../../policy/limit.ts'
import { claimsOf } from '../../policy/conditions.ts'
import { type WordName, wordOf } from '../../policy/words.ts'
import { cell, formatList, formatRows, formatTable, pluralize } from '../format.ts'
import type { LoggedCall } from './formats/call.ts'

const MINUTE_MS = 60_000

const emptyCounts = () => ({
  calls: 0,
  admitted: 0,
  refused: 0,
  recorded: { admitted: 0, refused: 0, undecided: 0 },
  /** Refused in the replay and admitted in the record, and the reverse. */
  newlyRefused: 0,
  newlyAdmitted: 0,
})

const increment = (counts: Record<string, number>, name: string): void => {
  counts[name] = (counts[name] ?? 0) + 1
}

/** The part of each word's values that the access log lacks; undefined for words whose values it contains. */
const UNLOGGED: Readonly<Record<WordName, string | undefined>> = {
  client: undefined,
  user: 'users',
  ip: undefined,
  route: undefined,
  token: 'tokens',
  claim: 'claims',
  header: 'header fields',
  parameter: undefined,
}

/** Returns what a limit reads that the access log does not contain; undefined if it can be replayed. */
export function unloggedBy(limit: Limit) {
  const { per, together, when = [], unless = [] } = limit
  if (claimsOf([limit]).length > 0) return 'claims'
  if (together === 'token') return UNLOGGED.token
  if ([...when, ...unless].some(({ of }) => of === 'header')) return UNLOGGED.header
  return per.map((part) => UNLOGGED[wordOf(part).word]).find((lacking) => lacking !== undefined)
}

/** The largest number of calls of a client within 60 seconds, and the time of the first of them. */
interface BusiestMinute {
  readonly calls: number
  readonly from: string
}

/** Creates the memory of the busiest minute of each client, whose calls come in the order of time. */
function createBusiestMinutes() {
  /** The times of each client's calls in the minute before its last call. */
  const recent = new Map<string | undefined, number[]>()

  /** Adds a call; returns the minute that it ends if that is busier than the one before. */
  return (client: string | undefined, busiest: BusiestMinute, nowMs: number): BusiestMinute => {
    const times = recent.get(client) ?? []
    recent.set(client, times)
    while (times[0]! <= nowMs - MINUTE_MS) times.shift()
    times.push(nowMs)
    return times.length > busiest.calls ? { calls: times.length, from: instant(times[0]!) } : busiest
  }
}

/** Counts calls per client. Instants are ISO 8601 in UTC. */
export function createReport(config: Pick<Config, 'limits' | 'clients'>) {
  const names = new Map(config.clients.map(({ caller, name }) => [caller, name]))
  const byClient = new Map<string | undefined, ReturnType<typeof emptyClient>>()
  const totals = emptyCounts()
  const recordedBy: Record<string, number> = {}
  const busiestMinute = createBusiestMinutes()
  let from: string | null = null
  let to: string | null = null

  function emptyClient(client: string | undefined) {
    const name = names.get(client ?? '')
    const none: BusiestMinute = { calls: 0, from: '' }
    return {
      /** A caller, such as `ip:192.0.2.7` without authentication; null if no limit counts by who calls. */
      client: client ?? null,
      ...(name !== undefined && { name }),
      ...emptyCounts(),
      /** Refusals by the limit that the 429 would name, and calls over each shadow limit. */
      refusedBy: {} as Record<string, number>,
      shadowOver: {} as Record<string, number>,
      busiestMinute: none,
    }
  }

  function reportLimit(limit: Limit, clients: readonly ReturnType<typeof emptyClient>[]) {
    const { name, shadow } = limit
    const unlogged = unloggedBy(limit)
    // Logs of other proxies do not name the limit that refused.
    const isUnnamed = totals.recorded.refused > 0 && Object.keys(recordedBy).length === 0
    const by = shadow ? 'shadowOver' : 'refusedBy'
    const counts = clients.flatMap((client) => client[by][name] ?? [])
    return {
      name,
      shadow,
      replayed: unlogged === undefined,
      ...(unlogged && { unlogged }),
      refused: counts.reduce((sum, calls) => sum + calls, 0),
      clients: counts.length,
      recordedRefused: isUnnamed ? null : (recordedBy[name] ?? 0),
    }
  }

  return {
    /**
     * Counts a call of a client, or of another caller as the limits count it; calls come in the order
     * of time.
     */
    count(
      call: LoggedCall,
      client: string | undefined,
      { refusedBy, allowances }: Decision,
      nowMs: number,
    ): void {
      const { decision: recorded } = call
      const entry = byClient.get(client) ?? emptyClient(client)
      byClient.set(client, entry)
      const decided = refusedBy === undefined ? 'admitted' : 'refused'
      for (const counts of [totals, entry]) {
        counts.calls++
        counts[decided]++
        counts.recorded[recorded]++
        if (decided === 'refused' && recorded === 'admitted') counts.newlyRefused++
        if (decided === 'admitted' && recorded === 'refused') counts.newlyAdmitted++
      }
      if (refusedBy !== undefined) increment(entry.refusedBy, refusedBy.name)
      else
        for (const { name, shadow, admitted } of allowances)
          if (shadow && !admitted) increment(entry.shadowOver, name)
      if (call.limit !== undefined) increment(recordedBy, call.limit)
      to = instant(nowMs)
      from ??= to

      entry.busiestMinute = busiestMinute(client, entry.busiestMinute, nowMs)
    },

    report(top: number) {
      const clients = [...byClient.values()]
      const sorted = clients.toSorted((a, b) => b.refused - a.refused || b.calls - a.calls)
      return {
        from,
        to,
        totals: { clients: sorted.length, ...totals },
        limits: config.limits.map((limit) => reportLimit(limit, sorted)),
        clients: sorted.slice(0, top),
        more: Math.max(0, sorted.length - top),
      }
    },
  }
}

type Counted = ReturnType<ReturnType<typeof createReport>['report']>

export function describeClients({ clients }: Counted): string {
  const head = ['CLIENT', 'NAME', 'CALLS', 'ADMITTED', 'REFUSED', 'BY', 'BUSIEST MINUTE', 'SHADOW']
  const rows = clients.map(({ client, name, calls, admitted, refused, recorded, ...more }) => {
    const change = recorded.refused === refused ? refused : `${recorded.refused} -> ${refused}`
    const busiest = `${more.busiestMinute.calls} from ${more.busiestMinute.from}`
    const by = [byLimit(more.refusedBy), busiest, byLimit(more.shadowOver)]
    return [cell(client ?? '-'), cell(name ?? '-'), calls, admitted, change, ...by]
  })
  return formatRows(head, rows)
}

export function describeTotals({ totals, from, to }: Counted): string {
  const { calls, clients, admitted, refused, recorded, newlyAdmitted, newlyRefused } = totals
  if (calls === 0) return 'There is no call to report.'
  const table = formatTable([
    ['', 'ADMITTED', 'REFUSED', 'UNDECIDED'],
    ['recorded', recorded.admitted, recorded.refused, recorded.undecided],
    ['replayed', admitted, refused, null],
    ['newly', newlyAdmitted, newlyRefused, null],
  ])
  return `${pluralize(calls, 'call')} of ${pluralize(clients, 'client')} from ${from} to ${to}:\n${table}`
}

export function describeLimits({ limits }: Counted): string {
  const rows = limits.map(({ name, shadow, unlogged, recordedRefused, refused, clients }) => {
    const kind = shadow ? 'shadow' : 'live'
    const why = unlogged === undefined ? kind : `left out: the access log has no ${unlogged}`
    return [name, recordedRefused, refused, clients, why]
  })
  return formatRows(['LIMIT', 'RECORDED', 'REFUSED', 'CLIENTS', 'KIND'], rows)
}

const byLimit = (counts: Readonly<Record<string, number>>): string =>
  formatList(Object.entries(counts).map(([name, count]) => `${name} ${count}`))
