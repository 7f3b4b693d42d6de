import { allowanceUnder, type Decision, longestWait } from './decision.ts'
import { type Clock, SYSTEM_CLOCK } from '../runtime/clock.ts'
import { DenyCache } from './deny-cache.ts'
import { CONCURRENT_WAIT_MS } from './leases.ts'
import { isLeased, type Quota } from './quota.ts'
import type { Allowance, Charge, Correction, ImmediateStore, Store } from './store.ts'

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
export interface Limiter<Answer extends Decision | Promise<Decision> = Decision | Promise<Decision>> {
  /**
   * Charges all quotas and the call's DPoP proof, or none. Rejects only if the store does: with a
   * Failure under `onOutage: deny`.
   */
  decide(quotas: readonly Quota[], proof?: Quota): Answer
  /**
   * Charges an admitted call what it used, at the instant of its charge. `usedOf` returns its points
   * of a quota; undefined if those that were charged stay.
   */
  settle(quotas: readonly Quota[], decision: Decision, usedOf: (quota: Quota) => number | undefined): void
  /** Ends the leases of a call; ten seconds later if the upstream may go on with it. */
  release(quotas: readonly Quota[], decision: Decision, mayGoOn?: boolean): void
  /** Returns the refusal that `decide` would answer from memory; undefined if it would ask the store. */
  recall(quotas: readonly Quota[]): Decision | undefined
  /** Forgets all answers, after a reset. */
  forget(): void
}

const UNLIMITED: Decision = { admitted: true, allowances: [], mode: 'store', cached: false }

/** True if 80 % of a limit are used; in mode `local`, of the part that this gateway may admit. */
const isNear = ({ limit, remaining, part = limit }: Allowance): boolean => part - remaining >= part * 0.8

/** Returns the difference between what an admitted call used and was charged, for each limit that charged it. */
function correctionsOf(
  quotas: readonly Quota[],
  decision: Decision,
  usedOf: (quota: Quota) => number | undefined,
): readonly Correction[] {
  const corrections: Correction[] = []
  for (const quota of quotas) {
    // A shadow without room charges nothing.
    if (quota.isConcurrent || allowanceUnder(decision, quota)?.admitted !== true) continue
    const { cost = 1 } = quota
    const points = (usedOf(quota) ?? cost) - cost
    if (points !== 0) corrections.push({ quota, points })
  }
  return corrections
}

type OnOutcome = (limit: string, outcome: LimitOutcome) => void

/** Creates the limiter of a store; that of a store that answers at once decides at once. */
export function createLimiter(
  store: ImmediateStore,
  onOutcome?: OnOutcome,
  clock?: Pick<Clock, 'now'>,
): Limiter<Decision>
export function createLimiter(store: Store, onOutcome?: OnOutcome, clock?: Pick<Clock, 'now'>): Limiter
export function createLimiter(
  store: Store,
  onOutcome: OnOutcome = () => {},
  { now }: Pick<Clock, 'now'> = SYSTEM_CLOCK,
): Limiter {
  const cache = new DenyCache()

  /** Counts a question about a call that a limit refuses; returns false if there were too many. */
  function mayRecheck(quotas: readonly Quota[], { name }: Allowance, at: number): boolean {
    const { key, isConcurrent } = quotas.find((quota) => quota.name === name)!
    return !isConcurrent && cache.mayRecheck(key, at)
  }

  /**
   * Returns a refusal if a remembered allowance refuses, and no other quota can have a longer wait or
   * the re-checks are used up.
   */
  function recall(quotas: readonly Quota[], at: number): Decision | undefined {
    if (cache.isEmpty() && !quotas.some(isLeased)) return undefined
    const allowances: Allowance[] = []
    /** The maximum wait of the call for a quota without a remembered allowance. */
    let unknownMs = 0
    for (const quota of quotas) {
      if (quota.shadow) continue
      const allowance = quota.isConcurrent ? store.ownRefusal(quota) : cache.lookUp(quota, at)
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
   * True if an answer says that no call of the quota can pass until its wait is over. The
   * answer for a shadow does not, nor one with calls that the store does not have.
   */
  function isCertain({ shadow, access, counts, key }: Quota, allowance: Allowance, askedAt: number) {
    // A further call of an access passes although the limit is full. If that of an access by time
    // was refused, none is under way, and none begins at another gateway while the counter is full.
    const isFull = allowance.remaining === 0 && counts === undefined
    const passesNone = access === undefined || (!access.isOfToken && !allowance.admitted && isFull)
    return !shadow && passesNone && allowance.own === 0 && cache.isCurrent(key, askedAt)
  }

  /**
   * Remembers the allowances that an admitted call used up, and drops its others; remembers all of
   * a refused call.
   */
  function remember(quotas: readonly Quota[], { admitted, allowances }: Decision, askedAt: number): void {
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      // The end of a call in progress is unknown.
      if (quota.isConcurrent) continue
      const allowance = allowances[i]!
      const certain = isCertain(quota, allowance, askedAt)
      if (!admitted && certain)
        cache.rememberRefused(quota.key, {
          allowance,
          cost: quota.cost ?? 1,
          askedAt,
          answeredAt: now(),
        })
      else if (admitted && certain && allowance.remaining === 0)
        // It is known when a call of cost 1 can pass, also if this one cost more.
        cache.rememberFull(quota.key, { allowance, cost: 1, askedAt, answeredAt: now() })
      else if (admitted) cache.drop(quota.key)
    }
  }

  function report(allowance: Allowance, charged: boolean): void {
    const { name, admitted, shadow } = allowance
    if (charged && admitted) onOutcome(name, isNear(allowance) ? 'near' : 'within')
    else if (charged) onOutcome(name, 'shadow_over')
    else if (!admitted && !shadow) onOutcome(name, 'over')
  }

  function decided(charge: Charge, quotas: readonly Quota[], askedAt: number): Decision {
    const { admitted, allowances, proof, mode, decidedAt, chargedUs, lease } = charge
    if (!admitted && proof?.admitted === false)
      return { admitted, allowances: [], mode, decidedAt, cached: false, replayed: true }
    for (const allowance of allowances) report(allowance, admitted)
    const refusedBy = admitted ? undefined : longestWait(allowances)!
    const decision = { admitted, allowances, refusedBy, mode, decidedAt, chargedUs, lease, cached: false }
    // Remember only the store's answers: the fallback counts differently.
    if (mode === 'store') remember(quotas, decision, askedAt)
    // After a call that the fallback admitted, its limits have less room than is remembered.
    if (mode !== 'store' && admitted) for (const { key } of quotas) cache.drop(key)
    return decision
  }

  function forgetAnswers(corrections: readonly Correction[]): void {
    for (const { quota } of corrections) cache.forget(quota.key, now())
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
    settle(quotas, decision, usedOf) {
      const corrections = correctionsOf(quotas, decision, usedOf)
      if (corrections.length === 0) return
      forgetAnswers(corrections)
      // Until the store has the corrections, its answers count what was charged.
      void store.settle(decision, corrections)?.then(() => forgetAnswers(corrections))
    },
    release(quotas, { lease }, mayGoOn) {
      if (lease !== undefined) store.release(quotas, lease, mayGoOn)
    },
    recall: (quotas) => recall(quotas, now()),
    forget: () => cache.clear(now()),
  }
}
