import { expect, it } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import { boundsOf, leastPart, perGateway } from '../../../src/limit/fallback/part.ts'
import { Leases } from '../../../src/limit/leases.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

const QUOTA = { name: 'x', key: 'p:{a}:x', limit: 200, windowMs: 60_000, shadow: false }

/** Creates the counters of one gateway at an instant that does not pass. */
function createAt(nowMs: number, partPercent?: number) {
  const store = { spreadMs: () => 0, dateAt: () => 0, merge: () => Promise.reject(new Error('is not asked')) }
  const options = { isTracked: () => true, isUp: () => true, gateways: () => 50, partPercent }
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  return createLocalCounters(clock, { store, leases: new Leases(), ...options })
}
type Local = ReturnType<typeof createAt>

/** Returns the number of calls that one of 50 gateways admits. */
function admittedOf(local: Local, quota: Quota): number {
  for (let calls = 0; ; calls++) if (!local.charge([quota], 50, `1:g:${calls}`).admitted) return calls
}

/** What Redis reports before the outage. */
function report(local: Local, used: number): void {
  const { name, limit, windowMs, shadow } = QUOTA
  const counts = { name, limit, windowMs, shadow, used, remaining: limit - used, own: 0, admitted: true }
  const allowances = [{ ...counts, resetAt: 0, resetAfterMs: 60_000, retryAfterMs: 0 }]
  local.answered([QUOTA], { admitted: true, allowances, proof: undefined, mode: 'store' })
}

it.each([
  [200, 50, 1, 0, 4],
  [200, 50, 1, 10, 20],
  [200, 5, 1, 10, 40],
  [200, 1, 1, 10, 200],
  [20, 50, 1, 0, 1],
  [20, 50, 1, 100, 20],
  [10, 50, 4, 10, 4],
  [7, 50, 1, 29, 2],
  [0, 50, 1, 100, 0],
  [3, 50, 4, 100, 3],
])(
  'of %d points, one of %d gateways admits, at a cost of %d and a part of %d %%, %d',
  (limit, gateways, cost, percent, part) => {
    expect(perGateway(limit, gateways, cost, leastPart(limit, percent))).toBe(part)
  },
)

it('a gateway admits its percentage of a limit, or less if less is left', () => {
  expect(admittedOf(createAt(1000), QUOTA)).toBe(4)
  expect(admittedOf(createAt(1000, 10), QUOTA)).toBe(20)
  for (const [used, admitted] of [
    [180, 20],
    [190, 10],
    [200, 0],
  ] as const) {
    const local = createAt(1000, 10)
    report(local, used)
    expect(admittedOf(local, QUOTA)).toBe(admitted)
  }
})

it('a gateway admits its percentage of the calls at once', () => {
  const exports = { ...QUOTA, limit: 30, isConcurrent: true }
  expect(admittedOf(createAt(1000), exports)).toBe(1)
  const local = createAt(1000, 10)
  expect(admittedOf(local, exports)).toBe(3)
  expect(local.peek([exports], 50)).toMatchObject([{ limit: 30, part: 3, used: 3, remaining: 0 }])
})

it('an allowance has the number of the limit, the known calls, and what this gateway would still admit', () => {
  const local = createAt(1000, 10)
  report(local, 100)
  local.charge([QUOTA], 50)
  const [allowance] = local.peek([QUOTA], 50)
  expect(allowance).toMatchObject({ limit: 200, part: 20, used: 101, remaining: 19 })
  report(local, 190)
  expect(local.peek([QUOTA], 50)).toMatchObject([{ limit: 200, part: 20, used: 191, remaining: 9 }])
})

it.each([
  [200, 1, 50, 0],
  [200, 1, 50, 10],
  [200, 1, 3, 10],
  [20, 1, 50, 0],
  [4, 1, 50, 100],
  [10, 4, 3, 0],
  [200, 30, 5, 1],
  [0, 1, 50, 10],
] as const)(
  'gateways admit as much as the bounds state for a limit of %d with calls of %d points, %d gateways and a part of %d %%',
  (limit, cost, gateways, percent) => {
    const quota = { ...QUOTA, limit, ...(cost > 1 && { cost }) }
    /** Returns what one gateway admits that counts this number of gateways. */
    function admittedAmong(counted: number): number {
      const local = createAt(1000, percent)
      for (let points = 0; ; points += cost) if (!local.charge([quota], counted).admitted) return points
    }
    const bounds = boundsOf(limit, cost, { gateways, percent })
    const among = Array.from({ length: gateways }, (_, i) => admittedAmong(i + 1))
    const oneByOne = among.reduce((sum, points) => sum + points, 0)
    // Less than the cost of a call may be left.
    expect(bounds.ofOne - among.at(-1)!).toBeGreaterThanOrEqual(0)
    expect(bounds.ofOne - among.at(-1)!).toBeLessThan(cost)
    expect(bounds.ofAll).toBe(gateways * bounds.ofOne)
    expect(bounds.oneByOne - oneByOne).toBeGreaterThanOrEqual(0)
    expect(bounds.oneByOne - oneByOne).toBeLessThan(cost * gateways)
    expect(bounds.ofStarted - among[0]!).toBeLessThan(cost)
  },
)

it('store.instances replaces the number of gateways in all bounds', () => {
  const sharing = { gateways: 50, instances: 10, percent: 1 }
  expect(boundsOf(200, 1, sharing)).toEqual({ ofOne: 20, ofAll: 1000, oneByOne: 1000, ofStarted: 20 })
})
