import { LRUCache } from 'lru-cache'
import { type Decision, longestWait } from './decision.ts'
import type { Quota } from './limit.ts'
import type { Allowance, Charge, Store } from './store.ts'

/** The outcome of a decision for one limit, for the metrics: `near` has used 80 % of it, `over_cached` did not ask the store. */
export type Outcome = 'within' | 'near' | 'over' | 'over_cached' | 'shadow_over'

export type Limiter = ReturnType<typeof createLimiter>

/** Maximum age of a cached allowance, in milliseconds. Bounds how late a reset or a raised limit at another gateway is noticed. */
const MAX_AGE_MS = 1000
/** Maximum cached keys; the key cached first is evicted first. */
const MAX_KEYS = 10_000
/** Maximum re-checks of a full key in `MAX_AGE_MS`, which find out if another limit of the call has a longer wait. */
const MAX_RECHECKS = 16

/** A cached answer of the store for one key. Instants are of the limiter's clock (`now`). */
interface CachedAllowance {
  readonly allowance: Allowance
  /** The waits of `allowance` began between `askedAt` and `answeredAt`. */
  readonly askedAt: number
  readonly answeredAt: number
  readonly rechecks: { count: number; sinceAt: number }
}

const UNLIMITED: Decision = { admitted: true, allowances: [], mode: 'store', cached: false }

/**
 * Creates the limiter, which asks the store, and refuses from memory while the next call cannot pass. Calls `onOutcome` for each
 * limit of a decision. `now` is in milliseconds and never goes back.
 */
export function createLimiter(
  store: Store,
  onOutcome: (limit: string, outcome: Outcome) => void = () => {},
  now = () => performance.now(),
) {
  /** Recent allowances of full keys, and of the other keys of refused calls, by key. */
  const denyCache = new LRUCache<string, CachedAllowance>({ max: MAX_KEYS })
  /** When the cache was last cleared. The answer to an earlier question is not cached. */
  let clearedAt = Number.NEGATIVE_INFINITY

  /** Returns the cached allowance of a quota with its waits counted from `at`; undefined if it is outdated. */
  function lookUp({ key, limit, windowMs }: Quota, at: number): Allowance | undefined {
    const cached = denyCache.peek(key)
    if (cached === undefined || at - cached.askedAt >= MAX_AGE_MS) return undefined
    const { allowance, askedAt, answeredAt } = cached
    if (allowance.limit !== limit || allowance.windowMs !== windowMs) return undefined
    const pastMs = at - answeredAt
    if (allowance.remaining > 0) {
      return { ...allowance, resetAfterMs: Math.max(0, allowance.resetAfterMs - pastMs) }
    }
    if (limit === 0) {
      const resetAt = Math.floor(allowance.resetAt + pastMs)
      return { ...allowance, admitted: false, resetAt, resetAfterMs: windowMs, retryAfterMs: windowMs }
    }
    // The next call may pass.
    if (askedAt + allowance.retryAfterMs <= at) return undefined
    const waitMs = allowance.retryAfterMs - pastMs
    return { ...allowance, admitted: false, resetAfterMs: waitMs, retryAfterMs: waitMs }
  }

  function mayRecheck({ key }: Quota, at: number): boolean {
    const { rechecks } = denyCache.peek(key)!
    if (at - rechecks.sinceAt >= MAX_AGE_MS) {
      rechecks.count = 0
      rechecks.sinceAt = at
    }
    return rechecks.count++ < MAX_RECHECKS
  }

  /**
   * Returns a refusal with the cached allowances of the live quotas if one of them refuses and no other quota can have a longer
   * wait, or the re-checks are used up. Returns undefined if the store must be asked.
   */
  function recall(quotas: readonly Quota[], at: number): Decision | undefined {
    if (denyCache.size === 0) return undefined
    const allowances: Allowance[] = []
    let unknownMs = 0
    for (const quota of quotas) {
      if (quota.shadow) continue
      const allowance = lookUp(quota, at)
      if (allowance === undefined) unknownMs = Math.max(unknownMs, quota.windowMs)
      else allowances.push(allowance)
    }
    const refusedBy = longestWait(allowances)
    if (refusedBy === undefined) return undefined
    const fullest = quotas.find(({ name }) => name === refusedBy.name)!
    if (unknownMs > refusedBy.retryAfterMs && mayRecheck(fullest, at)) return undefined
    for (const { name, admitted } of allowances) if (!admitted) onOutcome(name, 'over_cached')
    // The store's clock now, to about a round trip.
    const decidedAt = refusedBy.resetAt - refusedBy.resetAfterMs
    return { admitted: false, allowances, refusedBy, mode: 'store', decidedAt, cached: true }
  }

  /** Caches the keys that an admitted call filled, or all keys of a refused call. */
  function remember(quotas: readonly Quota[], { admitted, allowances }: Charge, askedAt: number): void {
    let answeredAt: number | undefined
    for (let i = 0; i < quotas.length; i++) {
      const { key, shadow } = quotas[i]!
      const allowance = allowances[i]!
      if (!shadow && (!admitted || allowance.remaining === 0)) {
        answeredAt ??= now()
        const rechecks = denyCache.peek(key)?.rechecks ?? { count: 0, sinceAt: askedAt }
        denyCache.set(key, { allowance, askedAt, answeredAt, rechecks })
      } else if (admitted) {
        // The call was charged, so the cached allowance is outdated.
        denyCache.delete(key)
      }
    }
  }

  function report({ name, limit, remaining, admitted, shadow }: Allowance, charged: boolean): void {
    if (!charged) {
      if (!admitted && !shadow) onOutcome(name, 'over')
    } else if (!admitted) onOutcome(name, 'shadow_over')
    else onOutcome(name, limit - remaining >= limit * 0.8 ? 'near' : 'within')
  }

  function decided(charge: Charge, quotas: readonly Quota[], askedAt: number, hasProof: boolean): Decision {
    const { admitted, mode, decidedAt } = charge
    let { allowances } = charge
    if (hasProof) {
      // The proof is the last quota.
      if (!admitted && allowances.at(-1)?.admitted !== true) {
        return { admitted, allowances: [], mode, decidedAt, cached: false, replayed: true }
      }
      allowances = allowances.slice(0, -1)
    }
    for (const allowance of allowances) report(allowance, admitted)
    // Cache only the store's answers: the fallback counts differently.
    if (mode === 'store' && askedAt > clearedAt) remember(quotas, charge, askedAt)
    if (admitted) return { admitted, allowances, mode, decidedAt, cached: false }
    return { admitted, allowances, refusedBy: longestWait(allowances)!, mode, decidedAt, cached: false }
  }

  return {
    /** Charges all quotas and the call's DPoP proof, or none. Rejects only if the store does: with a Failure under `onOutage: deny`. */
    decide(quotas: readonly Quota[], proof?: Quota): Decision | Promise<Decision> {
      const hasProof = proof !== undefined
      if (quotas.length === 0 && !hasProof) return UNLIMITED
      // Taken before the question, so that no wait of the answer began earlier.
      const askedAt = now()
      const cached = recall(quotas, askedAt)
      if (cached !== undefined) return cached
      const charge = store.charge(hasProof ? [...quotas, proof] : quotas)
      if (!(charge instanceof Promise)) return decided(charge, quotas, askedAt, hasProof)
      return charge.then((answer) => decided(answer, quotas, askedAt, hasProof))
    },
    /** Returns the refusal that `decide` would answer from memory; undefined if it would ask the store. */
    recall: (quotas: readonly Quota[]) => recall(quotas, now()),
    /** Clears the cache, after a reset. */
    forget(): void {
      denyCache.clear()
      clearedAt = now()
    },
  }
}
