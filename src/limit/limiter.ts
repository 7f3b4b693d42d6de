import { type Decision, longestWait } from './decision.ts'
import type { Quota } from './limit.ts'
import type { Allowance, Charge, Store } from './store.ts'

/** How a limit took a call, for the metrics: `near` has used 80 % of it, `over_cached` was refused without the store. */
export type Outcome = 'within' | 'near' | 'over' | 'over_cached' | 'shadow_over'

export type Limiter = ReturnType<typeof createLimiter>

/** The longest that the store is not asked again, so that a reset or a raised limit elsewhere is seen. */
const MAX_MS = 1000
/** Keys that are remembered; the oldest is dropped first. */
const MAX_KEYS = 10_000
/** Re-checks in that time for a key known to be full, in case another limit of the call has a longer wait. */
const MAX_RECHECKS = 16

/** What the store answered for a key within the last second; instants are on the limiter's own clock. */
interface CachedAllowance {
  readonly allowance: Allowance
  /** The waits of `allowance` began no earlier than `askedAt`, and no later than `answeredAt`. */
  readonly askedAt: number
  readonly answeredAt: number
  readonly rechecks: { count: number; sinceAt: number }
}

const UNLIMITED: Decision = { admitted: true, allowances: [], mode: 'store', cached: false }

/**
 * Decides by asking the store, and from memory while the next call surely cannot pass. Calls `onOutcome` for each limit that
 * took part in a decision. `now` is in milliseconds and never goes back.
 */
export function createLimiter(
  store: Store,
  onOutcome: (limit: string, outcome: Outcome) => void = () => {},
  now = () => performance.now(),
) {
  /** Refusals that hold still, by key. */
  const denyCache = new Map<string, CachedAllowance>()
  /** How often the cache was cleared: an answer to an earlier question is not remembered. */
  let cleared = 0

  function lookUp({ key, limit, windowMs }: Quota, at: number): CachedAllowance | undefined {
    const one = denyCache.get(key)
    if (one === undefined || at - one.askedAt >= MAX_MS) return undefined
    const { allowance, askedAt } = one
    if (allowance.limit !== limit || allowance.windowMs !== windowMs) return undefined
    // A full key is known only until the next call may pass.
    return allowance.remaining > 0 || limit === 0 || askedAt + allowance.retryAfterMs > at ? one : undefined
  }

  /**
   * Returns what is known of the quotas that are not shadow, with waits that count from now, if one is known to refuse and no
   * other can have a longer wait; undefined if the store must be asked.
   */
  function knownRefusal(quotas: readonly Quota[], at: number): readonly Allowance[] | undefined {
    if (denyCache.size === 0) return undefined
    const found: CachedAllowance[] = []
    let longest: CachedAllowance | undefined
    let unknownMs = 0
    for (const quota of quotas) {
      if (quota.shadow) continue
      const one = lookUp(quota, at)
      if (one === undefined) unknownMs = Math.max(unknownMs, quota.windowMs)
      else {
        found.push(one)
        if (longest === undefined || waitMs(one, at) > waitMs(longest, at)) longest = one
      }
    }
    if (longest === undefined || longest.allowance.remaining > 0) return undefined
    if (unknownMs > waitMs(longest, at) && mayRecheck(longest, at)) return undefined
    return found.map((one) => allowanceNow(one, at))
  }

  /** Remembers the keys that an admitted call filled, and all of a refused one; `allowances` in the order of `quotas`. */
  function remember(
    quotas: readonly Quota[],
    admitted: boolean,
    allowances: readonly Allowance[],
    askedAt: number,
  ): void {
    let answeredAt: number | undefined
    for (let i = 0; i < quotas.length; i++) {
      const { key, shadow } = quotas[i]!
      const allowance = allowances[i]!
      if (shadow || (admitted && allowance.remaining > 0)) {
        // The call was charged, so what was known is outdated.
        if (admitted && denyCache.size > 0) denyCache.delete(key)
        continue
      }
      const rechecks = denyCache.get(key)?.rechecks ?? { count: 0, sinceAt: askedAt }
      denyCache.delete(key)
      // Each is kept for a second at most, so the stale ones are first.
      for (const [oldest, one] of denyCache) {
        if (askedAt - one.askedAt < MAX_MS && denyCache.size < MAX_KEYS) break
        denyCache.delete(oldest)
      }
      denyCache.set(key, { allowance, askedAt, answeredAt: (answeredAt ??= now()), rechecks })
    }
  }

  function decided(
    { admitted, allowances: all, mode, decidedAt }: Charge,
    quotas: readonly Quota[],
    proof: Quota | undefined,
    askedAt: number,
    clearedBefore: number,
  ): Decision {
    // The proof is the last quota.
    if (proof !== undefined && !admitted && all.at(-1)?.admitted !== true) {
      return { admitted, allowances: [], mode, decidedAt, cached: false, replayed: true }
    }
    const allowances = proof === undefined ? all : all.slice(0, -1)
    for (const allowance of allowances) report(allowance, admitted)
    // The fallback's answer says nothing of what the store will answer.
    if (mode === 'store' && cleared === clearedBefore) remember(quotas, admitted, allowances, askedAt)
    if (admitted) return { admitted, allowances, mode, decidedAt, cached: false }
    return { admitted, allowances, refusedBy: longestWait(allowances)!, mode, decidedAt, cached: false }
  }

  function report({ name, limit, remaining, admitted, shadow }: Allowance, charged: boolean): void {
    if (!charged) {
      if (!admitted && !shadow) onOutcome(name, 'over')
    } else if (!admitted) onOutcome(name, 'shadow_over')
    else onOutcome(name, limit - remaining >= limit * 0.8 ? 'near' : 'within')
  }

  function recall(quotas: readonly Quota[], at: number): Decision | undefined {
    const allowances = knownRefusal(quotas, at)
    if (allowances === undefined) return undefined
    for (const { name, admitted } of allowances) if (!admitted) onOutcome(name, 'over_cached')
    const refusedBy = longestWait(allowances)!
    // The store's clock now, to about a round trip.
    const decidedAt = refusedBy.resetAt - refusedBy.resetAfterMs
    return { admitted: false, allowances, refusedBy, mode: 'store', decidedAt, cached: true }
  }

  return {
    /**
     * Charges all quotas, and the DPoP proof that came with the call, or none. Rejects only if the store does: with a Failure
     * under `onOutage: deny`.
     */
    decide(quotas: readonly Quota[], proof?: Quota): Decision | Promise<Decision> {
      if (quotas.length === 0 && proof === undefined) return UNLIMITED
      // Taken before the question, so that no wait of the answer began earlier.
      const askedAt = now()
      const remembered = recall(quotas, askedAt)
      if (remembered !== undefined) return remembered
      const clearedBefore = cleared
      const charge = store.charge(proof === undefined ? quotas : [...quotas, proof])
      if (!(charge instanceof Promise)) return decided(charge, quotas, proof, askedAt, clearedBefore)
      return charge.then((answer) => decided(answer, quotas, proof, askedAt, clearedBefore))
    },
    /** Returns the refusal that `decide` would answer from memory; undefined if it would ask the store. */
    recall: (quotas: readonly Quota[]) => recall(quotas, now()),
    /** Drops every remembered refusal: after a reset. */
    forget(): void {
      denyCache.clear()
      cleared++
    },
  }
}

/** Milliseconds after which the next call of a key surely passes; with a limit of 0, a window from now. */
function waitMs({ allowance, answeredAt }: CachedAllowance, now: number): number {
  return allowance.limit === 0 ? allowance.windowMs : answeredAt + allowance.retryAfterMs - now
}

function allowanceNow(denyCache: CachedAllowance, now: number): Allowance {
  const { allowance, answeredAt } = denyCache
  const pastMs = now - answeredAt
  if (allowance.remaining > 0) {
    return { ...allowance, resetAfterMs: Math.max(0, allowance.resetAfterMs - pastMs) }
  }
  const wait = waitMs(denyCache, now)
  const resetAt = allowance.limit === 0 ? Math.floor(allowance.resetAt + pastMs) : allowance.resetAt
  return { ...allowance, admitted: false, resetAt, resetAfterMs: wait, retryAfterMs: wait }
}

function mayRecheck({ rechecks }: CachedAllowance, now: number): boolean {
  if (now - rechecks.sinceAt >= MAX_MS) {
    rechecks.count = 0
    rechecks.sinceAt = now
  }
  return rechecks.count++ < MAX_RECHECKS
}
