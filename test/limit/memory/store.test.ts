import { afterEach, describe, expect, test, vi } from 'vitest'
import { createMemoryStore } from '../../../src/limit/memory/store.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'
import { quickly } from '../../helpers/runs.ts'
import { storeContract } from '../store-contract.ts'
import { memorySubject, throughLimiter } from '../subjects.ts'

storeContract('the memory store', async () => memorySubject(), {
  runs: quickly(30, 80),
  monotonic: true,
})

storeContract('the memory store through a limiter', async () => throughLimiter(memorySubject()), {
  remembers: true,
  monotonic: true,
})

describe('the memory store', () => {
  afterEach(() => {
    vi.useRealTimers()
  })
  const sizeOf = async (store: ReturnType<typeof createMemoryStore>) =>
    (await store.keys({ named: [], glob: undefined, matches: () => true })).length

  test('is empty again after its keys have expired', async () => {
    vi.useFakeTimers({ toFake: ['setInterval'] })
    let nowMs = 0
    const store = createMemoryStore({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
    for (let i = 0; i < 10_000; i++) {
      store.charge([{ name: 'x', key: `k${i}`, limit: 5, windowMs: 1000, shadow: false }])
    }
    expect(await sizeOf(store)).toBe(10_000)
    nowMs = 999
    vi.advanceTimersByTime(1000)
    expect(await sizeOf(store)).toBe(10_000)
    nowMs = 1000
    vi.advanceTimersByTime(2000)
    expect(await sizeOf(store)).toBe(0)
  })

  test('sweeps with its charges, so that sweeping keeps pace with any load', async () => {
    let nowMs = 0
    const store = createMemoryStore({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
    for (let i = 0; i < 50_000; i++) {
      nowMs += 1
      store.charge([{ name: 'x', key: `k${i}`, limit: 5, windowMs: 1000, shadow: false }])
    }
    expect(await sizeOf(store)).toBeLessThan(5000)
  })

  test.each([
    [30_000, 10_000],
    [4000, 4000],
  ])('keeps a place whose caller left: with leases of %i ms for %i ms', (windowMs, keptMs) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'performance', 'Date'] })
    const store = createMemoryStore(SYSTEM_CLOCK)
    const quota = { name: 'x', key: 'k', limit: 2, windowMs, shadow: false, isConcurrent: true }
    const [left, ended] = [store.charge([quota]), store.charge([quota])]
    store.release([quota], left.lease!, true)
    store.release([quota], ended.lease!)
    vi.advanceTimersByTime(keptMs - 1)
    expect(store.charge([quota]).admitted).toBe(true)
    expect(store.charge([quota]).admitted).toBe(false)
    vi.advanceTimersByTime(1)
    expect(store.charge([quota]).admitted).toBe(true)
  })

  test('counts on the monotonic clock and answers in wall-clock time', () => {
    let wallMs = 1_000_000
    let nowMs = 0
    const store = createMemoryStore({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => wallMs })
    const quota = { name: 'x', key: 'k', limit: 1, windowMs: 5000, shadow: false }
    expect(store.charge([quota]).allowances[0]!.resetAt).toBe(1_005_000)
    wallMs -= 500_000
    nowMs += 1000
    const refused = store.charge([quota])
    expect(refused.allowances[0]).toMatchObject({ resetAt: 504_000, retryAfterMs: 4000 })
    nowMs += 4000
    expect(store.charge([quota]).admitted).toBe(true)
  })
})
