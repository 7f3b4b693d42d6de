import { describe, expect, it } from 'vitest'
import { Leases, storedUntil } from '../../src/limit/leases.ts'
import type { Quota } from '../../src/limit/quota.ts'

const QUOTA: Quota = {
  name: 'exports',
  key: 'a',
  limit: 2,
  windowMs: 8000,
  shadow: false,
  isConcurrent: true,
}

describe('the leases of a gateway', () => {
  it('are renewed when a quarter of their length has passed, so that half is left after a slow turn', () => {
    const leases = new Leases()
    leases.hold(QUOTA, '1:g:1', storedUntil(QUOTA, 0), 0)
    expect(leases.dueForRenewal(2000)).toEqual([])
    expect(leases.dueForRenewal(2001).map(({ id }) => id)).toEqual(['1:g:1'])
  })

  it('count as lost a quarter before their end: a question may be under way for that time', () => {
    const leases = new Leases()
    leases.hold(QUOTA, '1:g:1', storedUntil(QUOTA, 0), 0)
    expect(leases.countUnstored('a', 5999)).toBe(0)
    expect(leases.countUnstored('a', 6000)).toBe(1)
  })
})
