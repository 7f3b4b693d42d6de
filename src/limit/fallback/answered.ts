import type { Clock } from '../../runtime/clock.ts'
import { type Leases, storedUntil } from '../leases.ts'
import type { Quota } from '../quota.ts'
import { type Allowance, allowanceAt, type Charge } from '../store.ts'
import type { createKeys } from './keys.ts'

interface AnsweredParts {
  readonly clock: Clock
  readonly keys: ReturnType<typeof createKeys>
  readonly leases: Leases
  readonly isTracked: (quota: Quota) => boolean
  readonly gateways: () => number
}

/**
 * Creates the function that records an answer of the store, and returns it: what it has counted for
 * each key, and the leases that it has added. `askedMs` is the local instant of a question with leases.
 */
export function createAnswered({ clock, keys, leases, isTracked, gateways }: AnsweredParts) {
  /** Holds a lease that the store has added. If the store then had fewer than were held, it has lost them. */
  function holdStored(quota: Quota, lease: string, { used }: Allowance, askedMs: number): void {
    leases.hold(quota, lease, storedUntil(quota, askedMs), clock.now())
    const { key } = quota
    if (used < leases.count(key)) leases.doubt(key, used, askedMs)
  }

  return (quotas: readonly Quota[], charge: Charge, askedMs = 0): Charge => {
    const { admitted, localMs = clock.now(), lease } = charge
    // Another gateway may have charged a call since the last answer.
    const mayHaveCharged = admitted || gateways() > 1
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      const allowance = allowanceAt(charge, i, quota)
      if (quota.isConcurrent) {
        if (lease !== undefined && admitted && allowance.admitted)
          holdStored(quota, lease, allowance, askedMs)
        continue
      }
      if (!isTracked(quota)) continue
      const state = keys.know(quota, quota.key)
      if (allowance.merged !== undefined) keys.onMerged(state, quota, allowance.merged)
      const mayHaveMore = mayHaveCharged || state.isMerging()
      state.stored.record(quota, allowance, localMs, mayHaveMore, admitted)
      if (quota.access === undefined) continue
      // An access counts as a limit that has admitted its one call.
      const access = { admitted: true, limit: 1, ...allowance.access! }
      keys.know(quota, quota.access.key).stored.record(quota.access, access, localMs, mayHaveMore)
    }
    return charge
  }
}
