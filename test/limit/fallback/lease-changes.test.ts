import { expect, it } from 'vitest'
import { createLeaseChanges } from '../../../src/limit/fallback/lease-changes.ts'
import { Leases, storedUntil } from '../../../src/limit/leases.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import type { RemoteStore } from '../../../src/limit/store.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

const QUOTA: Quota = {
  ...{ name: 'exports', key: 'a', limit: 2, windowMs: 8000, shadow: false, isConcurrent: true },
}
const DUE_MS = 2001

it.each([
  ['is due again if the store did not answer', () => Promise.reject(new Error('no answer')), 1],
  ['is not due again if the store has renewed it', () => Promise.resolve(), 0],
])('a lease that was to be renewed %s', async (_, renewLeases, due) => {
  const leases = new Leases()
  leases.hold(QUOTA, '1:g:1', storedUntil(QUOTA, 0), 0)
  const store: Pick<RemoteStore, 'endLeases' | 'renewLeases' | 'slot'> = {
    renewLeases,
    endLeases: () => Promise.resolve(),
    slot: () => 0,
  }
  const changes = createLeaseChanges(leases, store, () => true, { ...SYSTEM_CLOCK, now: () => DUE_MS })
  await changes.turn()
  expect(leases.dueForRenewal(DUE_MS)).toHaveLength(due)
})
