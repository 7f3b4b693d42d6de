import { Refusal } from '../errors.ts'
import { type Decision, refuses, retryAfterSecs } from '../limit/decision.ts'
import { boundOf } from '../limit/store.ts'
import type { Quota } from '../limit/quota.ts'
import { formatCalendar } from '../policy/calendar.ts'
import type { Limit } from '../policy/limit.ts'
import { instant } from '../runtime/instant.ts'

/** Content of the header fields: the allowances of a call, and the one that refused it. */
export type Reported = Pick<Decision, 'allowances' | 'refusedBy'>

/**
 * Returns the header fields of the limit that refused, with `Retry-After`, or of the first live
 * limit, as text for `appendFields`. In an outage, `Limit` is the limit's own number and `Remaining`
 * what this gateway would still admit.
 */
export function decisionHeaders({ allowances, refusedBy }: Reported): string {
  const shown = refusedBy ?? allowances.find(({ shadow }) => !shadow)
  if (shown === undefined) return ''
  const calls = `\r\nX-RateLimit-Limit: ${shown.limit}\r\nX-RateLimit-Remaining: ${shown.remaining}`
  const headers = `${calls}\r\nX-RateLimit-Reset: ${instant(shown.resetAt)}`
  return refusedBy ? `${headers}\r\nRetry-After: ${retryAfterSecs(shown)}` : headers
}

/** Maximum integer of a structured field (RFC 9651 section 3.3.1). */
const MAX_SF_INTEGER = 999_999_999_999_999

/**
 * Returns `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10) of the live
 * limits, as text for `appendFields`. The names of limits need no escapes. A limit that a cached
 * refusal lacks is only in the policy. The draft has only whole seconds; they are rounded up. Calls
 * at once have no window, and the unit `concurrent-requests` (section 9.3). Calendar periods differ
 * in length, so their policy has no window; `t` is the time to the end of the period.
 */
export function draftHeaders({ allowances }: Reported, quotas: readonly Quota[]): string {
  const live = allowances.filter(({ shadow }) => !shadow)
  if (live.length === 0) return ''
  const policies = quotas
    .filter(({ shadow }) => !shadow)
    .map((quota) => {
      const { limit, windowMs } = live.find(({ name }) => name === quota.name) ?? quota
      const policy = `"${quota.name}";q=${Math.min(limit, MAX_SF_INTEGER)}`
      if (quota.isConcurrent) return `${policy};qu="concurrent-requests"`
      return quota.calendar === undefined ? `${policy};w=${Math.ceil(windowMs / 1000)}` : policy
    })
  const limits = live.map(({ name, remaining, resetAfterMs }) => {
    const calls = Math.min(remaining, MAX_SF_INTEGER)
    return `"${name}";r=${calls};t=${Math.ceil(resetAfterMs / 1000)}`
  })
  return `\r\nRateLimit-Policy: ${policies.join(', ')}\r\nRateLimit: ${limits.join(', ')}`
}

/**
 * Returns the 429, or the configured refusal, of a refused decision, without the fields of
 * `decisionHeaders`. Throws a TypeError for an admitted one.
 */
export function exceeded({ allowances, refusedBy }: Reported, limits: readonly Limit[] = []) {
  const { name, limit, windowMs } = refusedBy!
  const configured = limits.find((limit) => limit.name === name)
  const { calendar, refusal: reply, inPoints, cost, isConcurrent } = configured ?? {}
  const secs = retryAfterSecs(refusedBy!)
  let span = calendar ? `in a calendar ${formatCalendar(calendar)}` : `in ${durationText(windowMs)}`
  if (isConcurrent) span = 'at once'
  else if (inPoints) span += `; this call takes ${cost}`
  const calls = count(limit, inPoints ? 'point' : 'call')
  const part = boundOf(refusedBy!)
  const bound =
    part === undefined
      ? ''
      : ` While the shared counters do not answer, this gateway admits ${part} of the ${limit}.`
  const message =
    limit === 0
      ? `The limit "${name}" allows this client no calls.`
      : `The limit "${name}" allows ${calls} ${span}.${bound} Retry in ${count(secs, 'second')}.`
  const violatedPolicies = allowances.filter(refuses).map(({ name }) => name)
  return new Refusal('TooManyRequests', message, { retryAfterSecs: secs, violatedPolicies, reply })
}

const UNITS_MS = { day: 86_400_000, hour: 3_600_000, minute: 60_000, second: 1000, millisecond: 1 }
const UNITS = Object.entries(UNITS_MS)

/** Formats a duration in the largest unit that divides it: `1 minute`, `90 seconds`. */
export function durationText(ms: number): string {
  const [unit, unitMs] = UNITS.find(([, unitMs]) => ms % unitMs === 0)!
  return count(ms / unitMs, unit)
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`
