import { type Decision, retryAfterSecs } from '../limit/decision.ts'
import type { Quota } from '../limit/quota.ts'
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
