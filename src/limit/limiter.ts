import { type Decision, longestWait } from './decision.ts'
import { type Clock, SYSTEM_CLOCK } from '../runtime/clock.ts'
import { CONCURRENT_WAIT_MS } from './leases.ts'
import { isLeased, type Quota } from './quota.ts'
import type { Allowance, Charge, Store } from './store.ts'

/**
 * The outcome of a decision for one limit, for the metrics: `near` has used 80 % of it,
 * `over_cached` did not ask the store.
 */
export type LimitOutcome = 'within' | 'near' | 'over' | 'over_cached' | 'shadow_over'

/**
 * Decides calls under their limits. While an answer of the store says that the next call cannot
 * pass, it refuses from memory: of 1000 calls a second under `limit: 10` in a minute, Redis
 * decides ten, and afterwards about one refusal a second.
 */
export interface Limiter {
  /**
   * Charges all quotas and the call's DPoP proof, or none. Rejects only if the store does: with a
   * Failure under `onOutage: deny`.
   */
  decide(quotas: readonly Quota[], proof?: Quota): Decision | Promise<Decision>
  /** Gives a call that was charged back to the limits that count successes. */
  giveBack(quotas: readonly Quota[], decision: Decision): void
  /** Ends the leases of a call; ten seconds later if the upstream may go on with it. */
  release(quotas: readonly Quota[], decision: Decision, mayGoOn?: boolean): void
  /** Returns the refusal that `decide` would answer from memory; undefined if it would ask the store. */
  recall(quotas: readonly Quota[]): Decision | undefined
  /** Clears the cache, after a reset. */
  forget(): void
}

/**
 * Maximum age of a cached allowance, in milliseconds. Bounds how late a reset or a raised limit at
 * another gateway is noticed.
 */
const MAX_AGE_MS = 1000
/** Maximum cached keys; the key cached first is evicted first. */
const MAX_KEYS = 10_000
/** Maximum re-checks of a full key in `MAX_AGE_MS`, which find out if another limit of the call has a longer wait. */
const MAX_RECHECKS = 16

/** A cached answer of the store for one key. Instants are of the clock. */
interface CachedAllowance {
  readonly allowance: Allowance
  readonly cost: number
  /** The answers under other limits of the key, and to calls of other costs, which have other waits. */
  readonly others: CachedAllowance | undefined
  /** The waits of `allowance` began between `askedAt` and `answeredAt`. */
  readonly askedAt: number
  readonly answeredAt: number
  readonly rechecks: { count: number; sinceAt: number }
}

/** True if an answer is that of a limit of its key to a call of this cost. */
const isFor = (name: string, cost: number, cached: CachedAllowance): boolean =>
  cached.cost === cost && cached.allowance.name === name

/** Returns the cached answers of a key, without that of a limit to a call of this cost. */
function without(name: string, cost: number, last?: CachedAllowance): CachedAllowance | undefined {
  if (last === undefined || isFor(name, cost, last)) return last?.others
  return { ...last, others: without(name, cost, last.others) }
}

const UNLIMITED: Decision = { admitted: true, allowances: [], mode: 'store', cached: false }

/** Creates the limiter of a store. */
export function createLimiter(
  store: Store,
  onOutcome: (limit: string, outcome: LimitOutcome) => void = () => {},
  { now }: Pick<Clock, 'now'> = SYSTEM_CLOCK,
): Limiter {
  /**
   * The deny cache: allowances of full keys, and of the other keys of refused calls; each for a
   * second, or until its next call may pass.
   */
  const cache = new Map<string, CachedAllowance>()
  /** When a call was last refunded to a key. The answer to an earlier question is not cached. */
  const returns = new Map<string, number>()
  /** When the cache was last cleared, for all keys alike. */
  let clearedAt = Number.NEGATIVE_INFINITY

  /** Returns the cached allowance of a quota with its waits counted from `at`; undefined if it is outdated. */
  function lookUp(quota: Quota, at: number): Allowance | undefined {
    const { name, key, limit, windowMs, calendar, cost = 1 } = quota
    let cached = cache.get(key)
    while (cached !== undefined && !isFor(name, cost, cached)) cached = cached.others
    if (cached === undefined || at - cached.askedAt >= MAX_AGE_MS) return undefined
    const { allowance, askedAt, answeredAt } = cached
    if (allowance.limit !== limit || allowance.windowMs !== windowMs) return undefined
    const { remaining, resetAt, retryAfterMs } = allowance
    const resetAfterMs = Math.max(0, allowance.resetAfterMs - (at - answeredAt))
    if (allowance.admitted && remaining > 0) return { ...allowance, resetAfterMs }
    // A full key is cached until its next call may pass. With a limit of 0, or below the cost, none
    // may: the wait is always a window.
    const isFixed = limit >= cost || calendar !== undefined
    if (isFixed && askedAt + retryAfterMs <= at) return undefined
    const waitMs = isFixed ? resetAfterMs : windowMs
    const nextAt = isFixed ? resetAt : Math.floor(resetAt + at - answeredAt)
    return { ...allowance, admitted: false, resetAt: nextAt, resetAfterMs: waitMs, retryAfterMs: waitMs }
  }

  /** Counts a re-check of the full key of the named limit; returns false if there were too many. */
  function mayRecheck(quotas: readonly Quota[], { name }: Allowance, at: number): boolean {
    const { key, isConcurrent } = quotas.find((quota) => quota.name === name)!
    if (isConcurrent) return false
    const { rechecks } = cache.get(key)!
    if (at - rechecks.sinceAt >= MAX_AGE_MS) {
      rechecks.count = 0
      rechecks.sinceAt = at
    }
    return rechecks.count++ < MAX_RECHECKS
  }

  /**
   * Returns a refusal if a cached allowance refuses, and no other quota can have a longer wait or
   * the re-checks are used up.
   */
  function recall(quotas: readonly Quota[], at: number): Decision | undefined {
    if (cache.size === 0 && !quotas.some(isLeased)) return undefined
    const allowances: Allowance[] = []
    /** The maximum wait of the call for a quota without a cached allowance. */
    let unknownMs = 0
    for (const quota of quotas) {
      if (quota.shadow) continue
      const allowance = quota.isConcurrent ? store.ownRefusal(quota) : lookUp(quota, at)
      const longestMs = quota.isConcurrent ? CONCURRENT_WAIT_MS : quota.windowMs
      if (allowance === undefined) unknownMs = Math.max(unknownMs, longestMs)
      else allowances.push(allowance)
    }
    const refusedBy = longestWait(allowances)
    if (refusedBy === undefined) return undefined
    if (unknownMs > refusedBy.retryAfterMs && mayRecheck(quotas, refusedBy, at)) return undefined
    for (const { name, admitted } of allowances) if (!admitted) onOutcome(name, 'over_cached')
    // The store's clock now, to about a round trip.
    const decidedAt = refusedBy.resetAt - refusedBy.resetAfterMs
    return { admitted: false, allowances, refusedBy, mode: 'store', decidedAt, cached: true }
  }

  /**
   * Caches the allowances that an admitted call used up, or all of a refused call; drops the others
   * of an admitted call.
   */
  function remember(quotas: readonly Quota[], { admitted, allowances }: Decision, askedAt: number) {
    let answeredAt: number | undefined
    for (let i = 0; i < quotas.length; i++) {
      const { name, key, shadow, access, counts, cost: costOfCall = 1, isConcurrent } = quotas[i]!
      // The end of a call in progress is unknown.
      if (isConcurrent) continue
      const allowance = allowances[i]!
      // A further call of an access passes although the limit is full. If that of an access by time
      // was refused, none is under way, and none begins at another gateway while the counter is full.
      const isFull = allowance.remaining === 0 && counts === undefined
      const passesNone = access === undefined || (!access.isOfToken && !allowance.admitted && isFull)
      // With own calls, the store does not know when the next call can pass.
      const isCertain = allowance.own === 0 && askedAt > (returns.get(key) ?? -Infinity)
      if (!shadow && passesNone && isCertain && (!admitted || allowance.remaining === 0)) {
        answeredAt ??= now()
        // After an admitted call, it is known when a call of cost 1 can pass.
        const cost = admitted ? 1 : costOfCall
        const cached = cache.get(key)
        const rechecks = cached?.rechecks ?? { count: 0, sinceAt: askedAt }
        const others = admitted ? undefined : without(name, cost, cached)
        cache.delete(key)
        if (cache.size === MAX_KEYS) cache.delete(cache.keys().next().value!)
        cache.set(key, { allowance, cost, others, askedAt, answeredAt, rechecks })
      } else if (admitted) cache.delete(key)
    }
  }

  function report({ name, limit, used, admitted, shadow }: Allowance, charged: boolean): void {
    if (charged && admitted) onOutcome(name, used >= limit * 0.8 ? 'near' : 'within')
    else if (charged) onOutcome(name, 'shadow_over')
    else if (!admitted && !shadow) onOutcome(name, 'over')
  }

  function decided(charge: Charge, quotas: readonly Quota[], askedAt: number): Decision {
    const { admitted, allowances, proof, mode, decidedAt, lease } = charge
    if (!admitted && proof?.admitted === false)
      return { admitted, allowances: [], mode, decidedAt, cached: false, replayed: true }
    for (const allowance of allowances) report(allowance, admitted)
    const refusedBy = admitted ? undefined : longestWait(allowances)!
    const decision = { admitted, allowances, refusedBy, mode, decidedAt, lease, cached: false }
    // Cache only the store's answers: the fallback counts differently.
    if (mode === 'store' && askedAt > clearedAt) remember(quotas, decision, askedAt)
    // After a call that the fallback admitted, its limits have less room than was cached.
    if (mode !== 'store' && admitted) for (const { key } of quotas) cache.delete(key)
    return decision
  }

  /** Forgets what is cached of a key that gets a call back, and the answers to questions that were asked before. */
  function forgetKey(key: string): void {
    cache.delete(key)
    if (returns.size === MAX_KEYS) returns.clear()
    returns.set(key, now())
  }

  return {
    decide(quotas, proof) {
      if (quotas.length === 0 && proof === undefined) return UNLIMITED
      // Taken before the question, so that no wait of the answer began earlier.
      const askedAt = now()
      const cached = recall(quotas, askedAt)
      if (cached !== undefined) return cached
      const charge = store.charge(proof === undefined ? quotas : [...quotas, proof])
      if (!(charge instanceof Promise)) return decided(charge, quotas, askedAt)
      return charge.then((answer) => decided(answer, quotas, askedAt))
    },
    giveBack(quotas, { allowances }) {
      for (const quota of quotas) {
        const charged = quota.countsSuccess && allowances.find(({ name }) => name === quota.name)
        if (!charged || !charged.admitted) continue
        forgetKey(quota.key)
        // Until the store has the call back, its answers count it.
        void store.giveBack(quota, charged.resetAt)?.then(() => forgetKey(quota.key))
      }
    },
    release(quotas, { lease }, mayGoOn) {
      if (lease !== undefined) store.release(quotas, lease, mayGoOn)
    },
    recall: (quotas) => recall(quotas, now()),
    forget() {
      cache.clear()
      clearedAt = now()
    },
  }
}
