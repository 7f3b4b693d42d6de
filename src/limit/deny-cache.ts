import type { Quota } from './limit.ts'
import type { Allowance } from './store.ts'

/** The longest that the store is not asked again, so that a reset or a raised limit elsewhere is seen. */
const MAX_MS = 1000
/** Keys that are remembered; the oldest is dropped first. */
const MAX_KEYS = 10_000
/** Re-checks in that time for a key known to be full, in case another limit of the call has a longer wait. */
const MAX_RECHECKS = 16

/** What the store answered for a key within the last second; instants are on the limiter's own clock. */
interface Known {
  readonly allowance: Allowance
  /** The waits of `allowance` began no earlier than `askedAt`, and no later than `answeredAt`. */
  readonly askedAt: number
  readonly answeredAt: number
  readonly rechecks: { count: number; sinceAt: number }
}

/** Refusals that hold still, remembered without the store: the keys that an admitted call filled, and all of a refused one. */
export class DenyCache {
  readonly #keys = new Map<string, Known>()

  /**
   * Returns what is known of the quotas that are not shadow, with waits that count from now, if one is known to refuse and no
   * other can have a longer wait; undefined if the store must be asked.
   */
  recall(quotas: readonly Quota[], now: number): readonly Allowance[] | undefined {
    if (this.#keys.size === 0) return undefined
    let longest: Known | undefined
    let unknownMs = 0
    for (const quota of quotas) {
      if (quota.shadow) continue
      const known = this.#known(quota, now)
      if (known === undefined) unknownMs = Math.max(unknownMs, quota.windowMs)
      else if (longest === undefined || waitMs(known, now) > waitMs(longest, now)) longest = known
    }
    if (longest === undefined || longest.allowance.remaining > 0) return undefined
    if (unknownMs > waitMs(longest, now) && mayRecheck(longest, now)) return undefined
    return quotas.flatMap((quota) => {
      const known = quota.shadow ? undefined : this.#known(quota, now)
      return known === undefined ? [] : [allowanceNow(known, now)]
    })
  }

  /** Stores the answer to a question of `askedAt`; `allowances` are in the order of `quotas`. */
  remember(
    quotas: readonly Quota[],
    admitted: boolean,
    allowances: readonly Allowance[],
    askedAt: number,
    now: number,
  ): void {
    for (const [i, { key, shadow }] of quotas.entries()) {
      const allowance = allowances[i]!
      if (shadow || (admitted && allowance.remaining > 0)) {
        // The call was charged, so what was known is outdated.
        if (admitted && this.#keys.size > 0) this.#keys.delete(key)
        continue
      }
      const rechecks = this.#keys.get(key)?.rechecks ?? { count: 0, sinceAt: askedAt }
      this.#keys.delete(key)
      // Each is kept for a second at most, so the stale ones are first.
      for (const [oldest, known] of this.#keys) {
        if (askedAt - known.askedAt < MAX_MS && this.#keys.size < MAX_KEYS) break
        this.#keys.delete(oldest)
      }
      this.#keys.set(key, { allowance, askedAt, answeredAt: now, rechecks })
    }
  }

  clear(): void {
    this.#keys.clear()
  }

  #known({ key, limit, windowMs }: Quota, now: number): Known | undefined {
    const known = this.#keys.get(key)
    if (known === undefined || now - known.askedAt >= MAX_MS) return undefined
    const { allowance, askedAt } = known
    if (allowance.limit !== limit || allowance.windowMs !== windowMs) return undefined
    // A full key is known only until the next call may pass.
    return allowance.remaining > 0 || limit === 0 || askedAt + allowance.retryAfterMs > now
      ? known
      : undefined
  }
}

/** Milliseconds after which the next call of a key surely passes; with a limit of 0, a window from now. */
function waitMs({ allowance, answeredAt }: Known, now: number): number {
  return allowance.limit === 0 ? allowance.windowMs : answeredAt + allowance.retryAfterMs - now
}

function allowanceNow(known: Known, now: number): Allowance {
  const { allowance, answeredAt } = known
  const pastMs = now - answeredAt
  if (allowance.remaining > 0) {
    return { ...allowance, resetAfterMs: Math.max(0, allowance.resetAfterMs - pastMs) }
  }
  const wait = waitMs(known, now)
  const resetAt = allowance.limit === 0 ? Math.floor(allowance.resetAt + pastMs) : allowance.resetAt
  return { ...allowance, admitted: false, resetAt, resetAfterMs: wait, retryAfterMs: wait }
}

function mayRecheck({ rechecks }: Known, now: number): boolean {
  if (now - rechecks.sinceAt >= MAX_MS) {
    rechecks.count = 0
    rechecks.sinceAt = now
  }
  return rechecks.count++ < MAX_RECHECKS
}
