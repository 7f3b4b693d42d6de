import { type Decision, longestWait } from './decision.ts'
import { DenyCache } from './deny-cache.ts'
import type { Quota } from './limit.ts'
import type { Allowance, Charge, Store } from './store.ts'

/** How a limit took a call, for the metrics: `near` has used 80 % of it, `over_cached` was refused without the store. */
export type Outcome = 'within' | 'near' | 'over' | 'over_cached' | 'shadow_over'

export type Limiter = ReturnType<typeof createLimiter>

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
  const denied = new DenyCache()
  /** How often the cache was cleared: an answer to an earlier question is not remembered. */
  let cleared = 0

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
    if (mode === 'store' && cleared === clearedBefore) {
      denied.remember(quotas, admitted, allowances, askedAt, now())
    }
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
    const allowances = denied.recall(quotas, at)
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
      denied.clear()
      cleared++
    },
  }
}
