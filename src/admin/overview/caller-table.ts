import { type Allowance, boundOf } from '../../limit/store.ts'
import type { ShownCaller } from '../../policy/counted-caller.ts'
import { agreedCaller, type FoundCaller, isSameCaller, partShownAs } from '../../policy/found-caller.ts'
import { sum } from '../../runtime/merge.ts'
import { Ring, secondOf } from './ring.ts'

/** Maximum callers that are kept when the table is full; more than are shown. */
export const MAX_CALLERS = 256
/** Minimum time between two reductions of a full table, in milliseconds. */
const REDUCE_MS = 10_000
/** Seconds whose calls decide which callers are kept: no more, so that new callers are compared fairly. */
const RANKED_SECONDS = REDUCE_MS / 1000
/** Seconds that the requests of a caller are counted. */
export const CALLER_SECONDS = 60

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
  /** Calls of `limit` that the gateway may admit without Redis; null if all. */
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
  calls: new Ring(CALLER_SECONDS),
  refused: new Ring(CALLER_SECONDS),
  limits: new Map<string, LatestDecision>(),
  /** The latest refusal; without a wait if there is none, or a call was admitted since. */
  refusal: new LatestDecision(),
  /** The plan that the token of its latest call names, if any. */
  plan: undefined as string | undefined,
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

/**
 * Keeps the busiest callers. A full table is reduced to them and those refused now: every ten
 * seconds, or when a further caller is refused. Instants are `performance.now()`.
 */
export function createCallerTable() {
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

  return {
    rowOf,
    rows: (): CallerRow[] => [...rows.values()],
    /** Finds the caller of the last minute that is shown as this text. */
    find(shown: string): FoundCaller {
      const row = rows.get(shown)
      return row?.isAmbiguous ? 'ambiguous' : row?.parts
    },
    /** Finds the part of callers of the last minute that is shown as this text. */
    findPart(shown: string): FoundCaller {
      const found = [...rows.values()].map((row) => {
        const part = partShownAs(row.parts, shown)
        return part !== undefined && row.isAmbiguous ? 'ambiguous' : part
      })
      return agreedCaller(found)
    },
  }
}

/** Returns the milliseconds until the refusal of a caller ends; 0 if it is not refused now. */
export const refusedForMs = ({ refusal }: CallerRow, at: number): number =>
  Math.max(0, refusal.decidedAt + refusal.retryAfterMs - at)
