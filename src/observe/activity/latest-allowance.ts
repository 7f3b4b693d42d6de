import type { Exchange } from '../../gateway/exchange.ts'
import { encodePart } from '../../limit/key.ts'
import { instant } from '../../limit/instant.ts'
import type { Allowance } from '../../limit/store.ts'
import type { Ring } from './ring.ts'
import { type LimitActivity, type RefusedNow, sum } from './values.ts'

/**
 * What a limit last said to a client, in numbers that are overwritten: allowances that were kept until the client's next call
 * would become old garbage, whose collection stops the process for long.
 */
export interface LatestAllowance extends Pick<Allowance, 'name'> {
  limit: number
  windowMs: number
  remaining: number
  resetAt: number
  shadow: boolean
  key: string
  at: number
  /** Counts what it refused or, a shadow limit, would have refused; made when it first does. */
  overs: Ring | undefined
}

export interface Refusal {
  readonly allowance: Allowance
  readonly key: string
  readonly at: number
}

export function emptyLatest(name: string): LatestAllowance {
  const [resetAt, at] = [-Infinity, -Infinity]
  return { name, limit: 0, windowMs: 0, remaining: 0, resetAt, shadow: false, key: '', at, overs: undefined }
}

/** Returns how long a refusal still lasts, in milliseconds; 0 or less if it has ended. */
export const refusedForMs = ({ allowance, at }: Refusal, now: number): number =>
  Math.ceil(at + allowance.retryAfterMs - now)

/** Returns null for a refusal that has ended. */
export function refusedUntil(refusal: Refusal, now: number): RefusedNow | null {
  const { allowance } = refusal
  const forMs = refusedForMs(refusal, now)
  const until = allowance.limit === 0 ? null : instant(allowance.resetAt)
  return forMs > 0 ? { limit: allowance.name, until, forMs } : null
}

/** Returns the key of the limit with this name; the empty text if no quota has it. */
export function keyOf(quotas: Exchange['quotas'], name: string): string {
  for (const quota of quotas) if (quota.name === name) return quota.key
  return ''
}

/** Returns what a limit last said to a caller, by its id or address. */
export function limitValues(
  caller: string,
  { name, limit, remaining, windowMs, resetAt, shadow, key, at, overs }: LatestAllowance,
  now: number,
  second: number,
): LimitActivity {
  const ageMs = Math.max(0, Math.round(now - at))
  const over = sum(overs?.before(second) ?? [])
  return {
    name,
    limit,
    // After a window, none of its calls is counted any more.
    remaining: ageMs > windowMs ? limit : remaining,
    windowSeconds: windowMs / 1000,
    reset: instant(resetAt),
    shadow,
    perClient: key.endsWith(`{${encodePart(caller)}}:${name}`),
    ageMs,
    refused: shadow ? 0 : over,
    wouldRefuse: shadow ? over : 0,
  }
}
