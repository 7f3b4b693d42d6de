// oxlint-disable-next-line no-restricted-imports -- a pure formatter
import { serializeList } from 'structured-headers'
import { Refusal } from '../errors.ts'
import { type Decision, refuses } from '../limit/decision.ts'
import type { Quota } from '../limit/quota.ts'
import type { Allowance } from '../limit/store.ts'
import { formatCalendar } from '../policy/calendar.ts'
import type { Limit } from '../policy/limit.ts'
import { instant } from '../runtime/instant.ts'

/**
 * Returns the header fields of the limit that refused, with `Retry-After`, or of the first live
 * limit, as text for `appendFields`.
 */
export function decisionHeaders(decision: Decision): string {
  const reported = decision.refusedBy ?? decision.allowances.find(({ shadow }) => !shadow)
  if (reported === undefined) return ''
  const { limit, remaining, resetAt } = reported
  const headers = `\r\nX-RateLimit-Limit: ${limit}\r\nX-RateLimit-Remaining: ${remaining}\r\nX-RateLimit-Reset: ${instant(resetAt)}`
  return decision.admitted ? headers : `${headers}\r\nRetry-After: ${retryAfterSecs(reported)}`
}

/** Maximum integer of a structured field (RFC 9651 section 3.3.1). */
const MAX_SF_INTEGER = 999_999_999_999_999

/**
 * Returns `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10) of the live
 * limits, as text for `appendFields`. A limit that a cached refusal lacks is only in the policy. The
 * draft has only whole seconds; they are rounded up.
 */
export function draftHeaders({ allowances }: Decision, quotas: readonly Quota[]): string {
  const live = allowances.filter(({ shadow }) => !shadow)
  if (live.length === 0) return ''
  const policies = quotas
    .filter(({ shadow }) => !shadow)
    .map((quota) => policyOf(live.find(({ name }) => name === quota.name) ?? quota, quota.isConcurrent))
  const limits = live.map(({ name, remaining, resetAfterMs }) =>
    item(name, ['r', remaining], ['t', resetAfterMs]),
  )
  return `\r\nRateLimit-Policy: ${serializeList(policies)}\r\nRateLimit: ${serializeList(limits)}`
}

type Policy = Pick<Quota, 'name' | 'limit' | 'windowMs'>

/** Formats a policy. Calls at once have no window, and the unit `concurrent-requests` (section 9.3). */
function policyOf({ name, limit, windowMs }: Policy, isConcurrent = false): Item {
  if (!isConcurrent) return item(name, ['q', limit], ['w', windowMs])
  const parameters = new Map<string, number | string>([['q', limit]])
  return [name, parameters.set('qu', 'concurrent-requests')]
}

type Item = [string, Map<string, number | string>]

function item(name: string, [calls, number]: [string, number], [secs, ms]: [string, number]) {
  const parameters = new Map([[calls, Math.min(number, MAX_SF_INTEGER)]])
  return [name, parameters.set(secs, Math.ceil(ms / 1000))] as Item
}

/**
 * Returns the 429, or the configured refusal, of a refused decision, without the fields of
 * `decisionHeaders`. Throws a TypeError for an admitted one.
 */
export function exceeded({ allowances, refusedBy }: Decision, limits: readonly Limit[] = []) {
  const { name, limit, windowMs } = refusedBy!
  const configured = limits.find((limit) => limit.name === name)
  const { calendar, refusal: reply, cost, isConcurrent } = configured ?? {}
  const secs = retryAfterSecs(refusedBy!)
  const window = calendar === undefined ? duration(windowMs) : `a calendar ${formatCalendar(calendar)}`
  const taken = cost === undefined ? '' : `; this call takes ${cost}`
  const message =
    limit === 0
      ? `The limit "${name}" allows this client no calls.`
      : isConcurrent
        ? `The limit "${name}" allows ${count(limit, 'call')} at once. Retry in ${count(secs, 'second')}.`
        : `The limit "${name}" allows ${count(limit, cost === undefined ? 'call' : 'point')} in ${window}${taken}. Retry in ${count(secs, 'second')}.`
  const violatedPolicies = allowances.filter(refuses).map(({ name }) => name)
  return new Refusal('TooManyRequests', message, { retryAfterSecs: secs, violatedPolicies, reply })
}

const retryAfterSecs = ({ retryAfterMs }: Allowance) => Math.max(1, Math.ceil(retryAfterMs / 1000))

const UNITS = Object.entries({
  day: 86_400_000,
  hour: 3_600_000,
  minute: 60_000,
  second: 1000,
  millisecond: 1,
})

/** Formats a duration in the largest unit that divides it: `1 minute`, `90 seconds`. */
function duration(ms: number): string {
  const [unit, unitMs] = UNITS.find(([, unitMs]) => ms % unitMs === 0)!
  return count(ms / unitMs, unit)
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`
