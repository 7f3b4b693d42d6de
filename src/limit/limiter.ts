import { type Decision, longestWait } from './decision.ts'
import type { Quota } from './limit.ts'
import { createRefusals } from './deny-cache.ts'
import type { Allowance, Charge, Store } from './store.ts'

/** How a limit took a call, for the metrics: `near` has used 80 % of it, `over_cached` was refused without the store. */
export type Outcome = 'within' | 'near' | 'over' | 'over_cached' | 'shadow_over'

const NEAR = 0.8

export interface LimiterOptions {
  readonly store: Store
  /** Told of each limit that took part in a decision. */
  readonly onOutcome?: (limit: string, outcome: Outcome) => void
  /** Most keys that are remembered at a time; 0 remembers none. */
  readonly maxRefusals?: number
  /** Milliseconds on a clock that never goes back. */
  readonly now?: () => number
}

export interface Limiter {
  /**
   * Charges all quotas, and the proof that the call came with, or none. Rejects only where the store does:
   * `ServiceUnavailable` under `onOutage: deny`.
   */
  decide(quotas: readonly Quota[], proof?: Quota): Decision | Promise<Decision>
  /** The refusal that `decide` would answer from memory; undefined where it would ask the store. */
  recall(quotas: readonly Quota[]): Decision | undefined
  /** Drops every remembered refusal at once: after a reset. */
  forget(): void
}

const UNLIMITED: Decision = { admitted: true, allowances: [], mode: 'store', cached: false }

/** Decides by asking the store, and answers from memory while the next call is known not to pass. */
export function createLimiter({
  store,
  onOutcome,
  maxRefusals = 10_000,
  now = () => performance.now(),
}: LimiterOptions): Limiter {
  const refusals = createRefusals(maxRefusals)

  function decided(
    { admitted, allowances: all, mode, decidedAt }: Charge,
    quotas: readonly Quota[],
    askedAt: number,
    proof: Quota | undefined,
  ): Decision {
    // The proof stands last.
    if (proof !== undefined && !admitted && all.at(-1)?.admitted !== true) {
      return { admitted, allowances: [], mode, decidedAt, cached: false, replayed: true }
    }
    const allowances = proof === undefined ? all : all.slice(0, -1)
    if (onOutcome) for (const allowance of allowances) report(allowance, admitted, onOutcome)
    // What stands in says nothing of what the store will say once it is back.
    if (mode === 'store') refusals.remember(quotas, { admitted, allowances }, askedAt, now())
    if (admitted) return { admitted, allowances, mode, decidedAt, cached: false }
    return { admitted, allowances, refusedBy: longestWait(allowances)!, mode, decidedAt, cached: false }
  }

  function recall(quotas: readonly Quota[], nowMs: number): Decision | undefined {
    const allowances = refusals.recall(quotas, nowMs)
    if (allowances === undefined) return undefined
    if (onOutcome) for (const { name, admitted } of allowances) if (!admitted) onOutcome(name, 'over_cached')
    const refusedBy = longestWait(allowances)!
    // What the store's clock says now, but for how long it took to ask it.
    const decidedAt = refusedBy.resetAt - refusedBy.resetAfterMs
    return { admitted: false, allowances, refusedBy, mode: 'store', decidedAt, cached: true }
  }

  return {
    decide(quotas, proof) {
      if (quotas.length === 0 && proof === undefined) return UNLIMITED
      // Taken before asking: the store's "not before" counts from an instant that is no earlier.
      const askedAt = now()
      const remembered = recall(quotas, askedAt)
      if (remembered !== undefined) return remembered
      const era = refusals.era()
      const charge = store.charge(proof === undefined ? quotas : [...quotas, proof])
      if (!(charge instanceof Promise)) return decided(charge, quotas, askedAt, proof)
      // What was asked before a reset is not to be remembered after it.
      return charge.then((answer) => decided(answer, refusals.era() === era ? quotas : [], askedAt, proof))
    },
    recall: (quotas) => recall(quotas, now()),
    forget: refusals.forget,
  }
}

function report(
  { name, limit, remaining, admitted, shadow }: Allowance,
  charged: boolean,
  onOutcome: (limit: string, outcome: Outcome) => void,
): void {
  if (!charged) {
    if (!admitted && !shadow) onOutcome(name, 'over')
  } else if (!admitted) onOutcome(name, 'shadow_over')
  else onOutcome(name, limit - remaining >= limit * NEAR ? 'near' : 'within')
}
