import type { Exchange } from '../../gateway/exchange.ts'
import { encodePart } from '../../limit/key.ts'
import { instant } from '../../limit/overrides.ts'
import type { Allowance } from '../../limit/store.ts'
import type { Ring } from './ring.ts'
import { type LimitActivity, type RefusedNow, sum } from './values.ts'

/** What a limit last said to a client. */
export interface Seen {
  allowance: Allowance
  key: string
  at: number
  /** Counts what it refused or, a shadow limit, would have refused; made when it first does. */
  overs: Ring | undefined
}

export type Refusal = Readonly<Omit<Seen, 'overs'>>

/** Returns null for a refusal that has ended. */
export function refusedUntil({ allowance, at }: Refusal, now: number): RefusedNow | null {
  const forMs = Math.ceil(at + allowance.retryAfterMs - now)
  const until = allowance.limit === 0 ? null : instant(allowance.resetAt)
  return forMs > 0 ? { limit: allowance.name, until, forMs } : null
}

/** Returns the key of the limit with this name; the empty text if no quota has it. */
export function keyOf(quotas: Exchange['quotas'], name: string): string {
  for (const quota of quotas) if (quota.name === name) return quota.key
  return ''
}

export function limitValues(
  client: string,
  { allowance, key, at, overs }: Seen,
  now: number,
  second: number,
): LimitActivity {
  const { name, limit, remaining, windowMs, resetAt, shadow } = allowance
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
    perClient: key.endsWith(`{${encodePart(client)}}:${name}`),
    ageMs,
    refused: shadow ? 0 : over,
    wouldRefuse: shadow ? over : 0,
  }
}
