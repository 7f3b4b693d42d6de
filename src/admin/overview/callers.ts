import type { Exchange } from '../../gateway/exchange.ts'
import { type Allowance, boundOf } from '../../limit/store.ts'
import { keyOfLimit } from '../../observe/access-log.ts'
import type { CallCounts } from '../../observe/status.ts'
import { countsBy } from '../../policy/caller-keys.ts'
import type { CountedCaller, ShownCaller } from '../../policy/counted-caller.ts'
import { type FoundCaller, isSameCaller } from '../../policy/found-caller.ts'
import { nameClient } from '../../policy/name-callers.ts'
import { sum } from '../../runtime/merge.ts'
import { createRing, type Ring, secondOf } from './ring.ts'

/** Maximum callers that are kept when the table is full; more than are shown. */
export const MAX_CALLERS = 256
/** Minimum time between two reductions of a full table, in milliseconds. */
const REDUCE_MS = 10_000
/** Seconds whose calls decide which callers are kept: no more, so that new callers are compared fairly. */
const RANKED_SECONDS = REDUCE_MS / 1000
/** Seconds that all requests are counted, and those of a caller. */
const TOTAL_SECONDS = 300
const CALLER_SECONDS = 60

/**
 * The latest decision of a limit about a caller. Written again with each decision: a new object for
 * each would survive its call.
 */
export class LatestDecision {
  name = ''
  key = ''
  limit = 0
  used = 0
  remaining = 0
  /** What the gateway may admit of `limit` without Redis; null if all. */
  part: number | null = null
  windowMs = 0
  resetAt = 0
  retryAfterMs = 0
  shadow = false
  /** `performance.now()` milliseconds. */
  decidedAt = Number.NEGATIVE_INFINITY
  /** Counts the calls that the limit refused or, as a shadow limit, would have refused; created at the first. */
  overs: Ring | undefined = undefined

  record(allowance: Allowance, key: string, decidedAt: number): void {
    this.name = allowance.name
    // Keeps the string of an earlier call.
    if (this.key !== key) this.key = key
    this.limit = allowance.limit
    this.used = allowance.used
    this.remaining = allowance.remaining
    this.part = boundOf(allowance) ?? null
    this.windowMs = allowance.windowMs
    this.resetAt = allowance.resetAt
    this.retryAfterMs = allowance.retryAfterMs
    this.shadow = allowance.shadow
    this.decidedAt = decidedAt
  }
}

export type CallerRow = ReturnType<typeof createRow>

const createRow = ({ parts, shown }: ShownCaller) => ({
  parts,
  shown,
  /** True if calls of another caller that is shown alike are counted here, too. */
  isAmbiguous: false,
  calls: createRing(CALLER_SECONDS),
  refused: createRing(CALLER_SECONDS),
  limits: new Map<string, LatestDecision>(),
  /** The latest refusal; without a wait if there is none, or a call was admitted since. */
  refusal: new LatestDecision(),
  /** The route of most of its calls, by the majority vote of Boyer and Moore, and how far it leads. */
  route: '',
  lead: 0,
})

/**
 * Orders callers so that half of the first `max` are the busiest; before the others come those
 * refused now: they may be made up.
 */
export function inOrder<T extends { calls: number; isRefused: boolean }>(callers: readonly T[], max: number) {
  const busiest = callers.toSorted((a, b) => b.calls - a.calls)
  const others = busiest.splice(max / 2)
  return [...busiest, ...others.toSorted((a, b) => Number(b.isRefused) - Number(a.isRefused))]
}

export type Activity = ReturnType<typeof createActivity>

/**
 * Counts requests, and tracks the busiest callers. A full table of callers is reduced to them and
 * those refused now: every ten seconds, or when a further caller is refused. Instants are
 * `performance.now()`.
 */
export function createActivity() {
  const requests = createRing(TOTAL_SECONDS)
  const refused = createRing(TOTAL_SECONDS)
  const failed = createRing(TOTAL_SECONDS)
  const rows = new Map<string, CallerRow>()
  let reducedAt = -Infinity

  function reduce(at: number): void {
    const ranked = [...rows.values()].map((row) => ({
      row,
      calls: sum(row.calls.before(secondOf(at)).slice(-RANKED_SECONDS)),
      isRefused: refusedForMs(row, at) > 0 && at - row.refusal.decidedAt < CALLER_SECONDS * 1000,
    }))
    for (const { row } of inOrder(ranked, MAX_CALLERS).slice(MAX_CALLERS)) rows.delete(row.shown)
    reducedAt = at
  }

  /** Returns the row of a caller; undefined if it is not tracked. */
  function rowOf(caller: ShownCaller, isRefused: boolean, at: number): CallerRow | undefined {
    const known = rows.get(caller.shown)
    if (known !== undefined) {
      // Mostly the same list, which `nameByOne` caches. A row for each would let callers fill the table.
      if (known.parts !== caller.parts && !isSameCaller(known.parts, caller.parts)) known.isAmbiguous = true
      return known
    }
    if (rows.size >= 2 * MAX_CALLERS) {
      if (!isRefused && at - reducedAt < REDUCE_MS) return undefined
      reduce(at)
    }
    const row = createRow(caller)
    rows.set(caller.shown, row)
    return row
  }

  function countFor(caller: ShownCaller, exchange: Exchange): void {
    const { decision, endedAt, route } = exchange
    const isRefused = decision?.admitted === false
    const isOwn = isRefused && isRefusedAs(caller, exchange)
    const row = rowOf(caller, isOwn, endedAt)
    if (row === undefined) return
    const second = secondOf(endedAt)
    row.calls.add(second)
    if (isRefused) row.refused.add(second)
    if (row.lead === 0) row.route = route!.match
    row.lead += row.route === route!.match ? 1 : -1
    if (decision !== undefined) recordDecision(row, exchange, second, isOwn)
  }

  return {
    rows: (): CallerRow[] => [...rows.values()],
    /** Returns all requests, also of callers that are not tracked. */
    calls(at = performance.now()): CallCounts {
      const second = secondOf(at)
      return {
        requests: requests.before(second),
        refused: refused.before(second),
        failed: failed.before(second),
      }
    },
    /** Counts a finished request, also for each caller that its limits count; without any, for its client. */
    count(exchange: Exchange, status: number): void {
      const { callers, caller, decision, endedAt } = exchange
      const second = secondOf(endedAt)
      requests.add(second)
      if (decision?.admitted === false) refused.add(second)
      else if (status >= 500) failed.add(second)
      for (const counted of callers) countFor(counted, exchange)
      if (callers.length === 0 && caller !== undefined)
        for (const client of nameClient(caller, exchange)) countFor(client, exchange)
    },
    /** Drops the allowances and the refusals of a caller whose limits have changed or were reset. */
    forget(caller: CountedCaller): void {
      for (const row of rows.values())
        if (row.isAmbiguous || hasParts(row.parts, caller)) forgetDecisions(row)
    },
    /** Drops the allowances and the refusals of all callers. */
    forgetAll(): void {
      for (const row of rows.values()) forgetDecisions(row)
    },
    /** Finds the caller of the last minute that is shown as this text. */
    find(shown: string): FoundCaller {
      const row = rows.get(shown)
      return row?.isAmbiguous ? 'ambiguous' : row?.parts
    },
  }
}

function forgetDecisions({ limits, refusal }: CallerRow): void {
  limits.clear()
  refusal.retryAfterMs = 0
}

/** True if a caller has all parts of `wanted`. */
const hasParts = (caller: CountedCaller, wanted: CountedCaller): boolean =>
  wanted.every(({ word, value }) => caller.some((own) => own.word === word && own.value === value))

/** True if the limit that refused a call counts by a caller: the caller is refused, and not only this call. */
const isRefusedAs = ({ parts }: ShownCaller, { decision, route }: Exchange): boolean =>
  route!.limits.some((limit) => limit.name === decision!.refusedBy?.name && countsBy(limit, parts))

function recordDecision(row: CallerRow, exchange: Exchange, second: number, isOwn: boolean): void {
  const { decision, quotas, endedAt, decidedAt = endedAt } = exchange
  const { admitted, allowances, refusedBy } = decision!
  for (const allowance of allowances) {
    const key = keyOfLimit(quotas, allowance.name)
    let latest = row.limits.get(allowance.name)
    if (latest === undefined) {
      latest = new LatestDecision()
      row.limits.set(allowance.name, latest)
    }
    // Calls may end in another order than they were decided.
    if (decidedAt >= latest.decidedAt) latest.record(allowance, key, decidedAt)
    if (admitted ? !allowance.admitted : allowance === refusedBy)
      (latest.overs ??= createRing(CALLER_SECONDS)).add(second)
    const { refusal } = row
    if (refusal.decidedAt > decidedAt) continue
    if (isOwn && allowance === refusedBy) refusal.record(allowance, key, decidedAt)
    else if (admitted && refusal.key === key) refusal.retryAfterMs = 0
  }
}

/** Returns the milliseconds until the refusal of a caller ends; 0 if it is not refused now. */
export const refusedForMs = ({ refusal }: CallerRow, at: number): number =>
  Math.max(0, refusal.decidedAt + refusal.retryAfterMs - at)
