import { Refusal } from '../errors.ts'
import { refuses, retryAfterSecs } from '../limit/decision.ts'
import { type Allowance, boundOf } from '../limit/store.ts'
import { formatCalendar } from '../policy/calendar.ts'
import type { Limit } from '../policy/limit.ts'
import type { Reported } from './rate-limit-fields.ts'

/** Maximum refusals that are kept, of all limits. */
const MAX_KEPT = 1000

/** A refusal, and the allowance that it was made from. */
interface Kept {
  readonly by: Allowance
  readonly refusal: Refusal
}

/** The refusals of each limit, by their `retryAfterSecs`. */
let keptOf = new WeakMap<Limit, Map<number, Kept>>()
let size = 0

/**
 * Returns the 429, or the configured refusal, of a refused decision, without the fields of
 * `decisionHeaders`. Throws a TypeError for an admitted one. The calls of a flood get the same one for
 * a second: one for each takes 1 us more (`npm run bench:micro -- refusal`).
 */
export function exceeded({ allowances, refusedBy }: Reported, limits: readonly Limit[] = []): Refusal {
  const by = refusedBy!
  const configured = limits.find(({ name }) => name === by.name)
  if (configured === undefined) return refusalOf(by, violated(allowances), undefined)
  const secs = retryAfterSecs(by)
  const known = keptOf.get(configured)?.get(secs)
  if (known !== undefined && saysSame(known, by, allowances)) return known.refusal
  const refusal = refusalOf(by, violated(allowances), configured)
  keep(configured, secs, { by, refusal })
  return refusal
}

/** Returns the names of the limits that refused. */
const violated = (allowances: readonly Allowance[]): readonly string[] =>
  allowances.filter(refuses).map(({ name }) => name)

/** True if a refusal has the text of another decision that refuses for as many seconds. */
function saysSame({ by: before, refusal }: Kept, by: Allowance, allowances: readonly Allowance[]): boolean {
  if (before.limit !== by.limit || before.windowMs !== by.windowMs) return false
  if (boundOf(before) !== boundOf(by)) return false
  const policies = refusal.violatedPolicies!
  let same = 0
  for (const allowance of allowances) {
    if (!refuses(allowance)) continue
    if (policies[same] !== allowance.name) return false
    same++
  }
  return same === policies.length
}

/** Keeps a refusal of a limit; drops those of all limits when there are too many. */
function keep(limit: Limit, secs: number, kept: Kept): void {
  if (size === MAX_KEPT) {
    keptOf = new WeakMap()
    size = 0
  }
  const refusals = keptOf.get(limit) ?? new Map<number, Kept>()
  keptOf.set(limit, refusals.set(secs, kept))
  size++
}

function refusalOf(by: Allowance, violatedPolicies: readonly string[], configured: Limit | undefined) {
  const { name, limit } = by
  const secs = retryAfterSecs(by)
  const calls = count(limit, configured?.inPoints ? 'point' : 'call')
  const [span, bound, wait] = [spanText(by, configured), boundText(by), count(secs, 'second')]
  const message =
    limit === 0
      ? `The limit "${name}" allows this client no calls.`
      : `The limit "${name}" allows ${calls} ${span}.${bound} Retry in ${wait}.`
  const reply = configured?.refusal
  return new Refusal('TooManyRequests', message, { retryAfterSecs: secs, violatedPolicies, reply })
}

/** Returns the time in which a limit allows its calls, and the cost of a call in points. */
function spanText({ windowMs }: Allowance, configured: Limit | undefined): string {
  const { calendar, inPoints, cost, isConcurrent } = configured ?? {}
  if (isConcurrent) return 'at once'
  const span = calendar ? `in a calendar ${formatCalendar(calendar)}` : `in ${durationText(windowMs)}`
  return inPoints ? `${span}; this call takes ${cost}` : span
}

/** Returns the sentence of what this gateway admits in an outage, after a space; empty if that is the limit. */
function boundText(by: Allowance): string {
  const part = boundOf(by)
  if (part === undefined) return ''
  return ` While the shared counters do not answer, this gateway admits ${part} of the ${by.limit}.`
}

const UNITS_MS = { day: 86_400_000, hour: 3_600_000, minute: 60_000, second: 1000, millisecond: 1 }
const UNITS = Object.entries(UNITS_MS)

/** Formats a duration in the largest unit that divides it: `1 minute`, `90 seconds`. */
export function durationText(ms: number): string {
  const [unit, unitMs] = UNITS.find(([, unitMs]) => ms % unitMs === 0)!
  return count(ms / unitMs, unit)
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`
