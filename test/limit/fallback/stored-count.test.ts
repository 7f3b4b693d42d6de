import { describe, expect, it } from 'vitest'
import { StoredCount } from '../../../src/limit/fallback/stored-count.ts'
import { frameAt } from '../../../src/limit/memory/call-log.ts'

const WINDOW_MS = 5000

/** An answer to a call of a cost at an instant; the first call that leaves does so `resetAfterMs` later. */
interface Answer {
  readonly atMs: number
  readonly cost?: number
  readonly admitted: boolean
  readonly used: number
  readonly resetAfterMs: number
}

/** Returns the count of answers to the calls of one gateway under a limit of 10 in five seconds. */
function countOf(answers: readonly Answer[]): StoredCount {
  const count = new StoredCount()
  for (const { atMs, cost, admitted, used, resetAfterMs } of answers) {
    const stored = { admitted, limit: 10, used, own: 0, resetAfterMs }
    count.record({ windowMs: WINDOW_MS, cost }, stored, atMs, admitted, admitted)
  }
  return count
}

const pointsAt = (count: StoredCount, atMs: number): number =>
  count.pointsIn(frameAt(10, { windowMs: WINDOW_MS }, atMs * 1000, atMs))

describe('the count of the store, in an outage of one gateway', () => {
  const FULL = { atMs: 1000, admitted: true, used: 10, resetAfterMs: WINDOW_MS }

  it('has no call that is later than the last admitted one, also after a refused call of a cost above the limit', () => {
    // With a cost above the limit, the wait is always a window; a settlement has changed what is used.
    const tooDear = { atMs: 3000, cost: 11, admitted: false, used: 6, resetAfterMs: WINDOW_MS }
    const settledLater = { ...tooDear, used: 7 }
    for (const answer of [tooDear, settledLater]) {
      const count = countOf([FULL, answer])
      expect(pointsAt(count, 5999)).toBe(answer.used)
      expect(pointsAt(count, 6000)).toBe(0)
    }
  })

  it('still has what an earlier answer showed, if calls have only left since', () => {
    const second = { atMs: 2000, admitted: true, used: 10, resetAfterMs: 4000 }
    // Calls of 7 points must leave: the last of these is that of 1500.
    const refused = { atMs: 2500, cost: 7, admitted: false, used: 10, resetAfterMs: 4000 }
    // The first call has left. A dearer one must wait for the call of 2000.
    const dearer = { atMs: 6200, cost: 10, admitted: false, used: 8, resetAfterMs: 800 }
    const count = countOf([FULL, second, refused, dearer])
    expect(pointsAt(count, 6499)).toBe(8)
    expect(pointsAt(count, 6500)).toBe(3)
    expect(pointsAt(count, 7000)).toBe(0)
  })

  it('no longer has what an earlier answer showed, from the very instant at which the first call leaves', () => {
    // Calls of 7 points must leave: all of 1000.
    const refused = { atMs: 2500, cost: 7, admitted: false, used: 10, resetAfterMs: 3500 }
    const count = countOf([FULL, refused])
    // As many points as have left may have been taken by calls of other gateways.
    const stored = { admitted: false, limit: 10, used: 10, own: 0, resetAfterMs: 3000 }
    count.record({ windowMs: WINDOW_MS }, stored, 6000, true)
    expect(pointsAt(count, 6500)).toBe(10)
  })

  it('still has what an earlier answer showed, if the store has not settled calls yet', () => {
    const count = countOf([FULL, { atMs: 2000, admitted: true, used: 10, resetAfterMs: 4000 }])
    count.settle(-5)
    const stored = { admitted: false, limit: 10, used: 10, own: 0, resetAfterMs: WINDOW_MS }
    count.record({ windowMs: WINDOW_MS, cost: 11 }, stored, 3000, false)
    expect(pointsAt(count, 5999)).toBe(10)
    expect(pointsAt(count, 6000)).toBe(5)
    expect(pointsAt(count, 7000)).toBe(0)
  })

  it('counts the calls of a key that it did not know, or knew a window ago, until all have left', () => {
    const tooDear = { atMs: 8000, cost: 11, admitted: false, used: 4, resetAfterMs: WINDOW_MS }
    for (const before of [[], [FULL]]) {
      const count = countOf([...before, tooDear])
      expect(pointsAt(count, 12_999)).toBe(4)
      expect(pointsAt(count, 13_000)).toBe(0)
    }
  })

  it('forgets what earlier answers showed once another call is admitted', () => {
    const refused = { atMs: 2500, cost: 7, admitted: false, used: 10, resetAfterMs: 4000 }
    const admitted = { atMs: 6100, admitted: true, used: 9, resetAfterMs: 400 }
    const count = countOf([FULL, refused, admitted])
    expect(pointsAt(count, 6499)).toBe(9)
    expect(pointsAt(count, 6500)).toBe(8)
  })
})
