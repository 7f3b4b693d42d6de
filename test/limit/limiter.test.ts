import { describe, expect, test } from 'vitest'
import type { Quota } from '../../src/limit/quota.ts'
import { createLimiter, type LimitOutcome } from '../../src/limit/limiter.ts'
import { createMemoryStore } from '../../src/limit/memory/store.ts'
import type { Charge, Store } from '../../src/limit/store.ts'
import { SYSTEM_CLOCK } from '../../src/runtime/clock.ts'

const quota: Quota = { name: 'sync', key: 'p:{a}:sync', limit: 1, windowMs: 5000, shadow: false }

/** Creates a limiter on a memory store that counts its charges, on a clock of the test. */
function setUp(options: { readonly delayed?: boolean; readonly mode?: Charge['mode'] } = {}) {
  const { delayed = false, mode = 'store' } = options
  const clock = { ms: 1000 }
  const memory = createMemoryStore({ ...SYSTEM_CLOCK, now: () => clock.ms, date: () => clock.ms })
  const asked = { count: 0 }
  const waiting: (() => void)[] = []
  /** Resolved when the store gets the calls that are settled. */
  let resolve = (): void => {}
  const promise = new Promise<void>((done) => (resolve = done))
  const returned = { promise, resolve: () => resolve() }
  const store: Store = {
    charge(quotas) {
      asked.count++
      const charge = { ...memory.charge(quotas), mode }
      if (!delayed) return charge
      return new Promise((resolve) => waiting.push(() => resolve(charge)))
    },
    settle: (charge, corrections) => returned.promise.then(() => memory.settle(charge, corrections)),
    release: (quotas, lease) => memory.release(quotas, lease),
    ownRefusal: () => undefined,
    peek: (quotas) => memory.peek(quotas),
    keys: (filter) => memory.keys(filter),
    reset: (filter) => memory.reset(filter),
    close: () => memory.close(),
  }
  const outcomes: [string, LimitOutcome][] = []
  const limiter = createLimiter(store, (limit, outcome) => outcomes.push([limit, outcome]), {
    now: () => clock.ms,
  })
  return {
    limiter,
    clock,
    asked,
    outcomes,
    memory,
    returned,
    answer: () => waiting.splice(0).forEach((resolve) => resolve()),
  }
}

/** Creates a limiter without Redis that admits 5 calls of 200. */
function partly() {
  const { memory } = setUp()
  const outcomes: [string, LimitOutcome][] = []
  const store: Store = {
    ...memory,
    charge([limited]) {
      const charge = memory.charge([{ ...limited!, limit: 5 }])
      const allowances = charge.allowances.map((one) => ({ ...one, limit: 200, part: 5 }))
      return { ...charge, allowances, mode: 'local' }
    },
  }
  return { limiter: createLimiter(store, (limit, outcome) => outcomes.push([limit, outcome])), outcomes }
}

describe('the limiter', () => {
  test.each([
    ['a higher cost', { cost: 3 }],
    ['a share', { name: 'share', limit: 2, counts: 'sync' }],
  ])('asks again for a call of %s when another gateway may have begun its access', async (_, of) => {
    const { limiter, clock, memory } = setUp()
    const other = createLimiter(memory, undefined, { now: () => clock.ms })
    const access = { key: 'p:{a}:~access', windowMs: 10_000, isOfToken: false }
    const plain = { ...quota, limit: 4, windowMs: 60_000, access }
    for (let i = 0; i < 2; i++) {
      other.decide([plain])
      clock.ms += 10_001
    }
    const dear = { ...plain, ...of }
    expect(await limiter.decide([dear])).toMatchObject({ admitted: false })
    expect(other.decide([plain])).toMatchObject({ admitted: true })
    expect(await limiter.decide([dear])).toMatchObject({ admitted: true })
  })

  test('refuses from memory while no call can begin an access', async () => {
    const { limiter, asked } = setUp()
    const access = { key: 'p:{a}:~access', windowMs: 0.001, isOfToken: false }
    const full = { ...quota, limit: 0, access }
    await limiter.decide([full])
    await limiter.decide([full])
    expect(asked.count).toBe(1)
  })

  test('asks again once the store has settled a call, also if it refused meanwhile', async () => {
    const { limiter, clock, asked, returned } = setUp()
    const success = { ...quota, limit: 1, windowMs: 60_000 }
    limiter.settle([success], await limiter.decide([success]), () => 0)
    clock.ms += 1
    expect(await limiter.decide([success])).toMatchObject({ admitted: false, cached: false })
    expect(await limiter.decide([success])).toMatchObject({ admitted: false, cached: true })
    clock.ms += 1
    returned.resolve()
    await new Promise((resolve) => setImmediate(resolve))
    expect(await limiter.decide([success])).toMatchObject({ admitted: true })
    expect(asked.count).toBe(3)
  })

  test('does not remember an answer from before a correction, also if 10,000 other keys were corrected since', async () => {
    const { limiter, clock, asked, answer, memory } = setUp({ delayed: true })
    const success = { ...quota, windowMs: 60_000 }
    const decision = { ...memory.charge([success]), cached: false }
    const refused = limiter.decide([success])
    clock.ms += 1
    for (let i = 0; i < 10_001; i++)
      limiter.settle([{ ...success, key: i === 0 ? success.key : `p:{${i}}:sync` }], decision, () => 0)
    answer()
    expect(await refused).toMatchObject({ admitted: false })
    void limiter.decide([success])
    expect(asked.count).toBe(2)
  })

  test('answers refusals from memory, and asks the store again after a second', async () => {
    const { limiter, clock, asked } = setUp()
    await limiter.decide([quota])
    clock.ms += 1000
    expect(await limiter.decide([quota])).toMatchObject({ admitted: false, cached: false })
    clock.ms += 999
    const remembered = await limiter.decide([quota])
    expect(remembered).toMatchObject({ admitted: false, cached: true, mode: 'store' })
    expect(remembered.refusedBy).toMatchObject({
      name: 'sync',
      retryAfterMs: 3001,
      resetAfterMs: 3001,
      resetAt: 6000,
    })
    expect(asked.count).toBe(2)
    clock.ms += 1
    expect(await limiter.decide([quota])).toMatchObject({ admitted: false, cached: false })
    expect(asked.count).toBe(3)
  })

  test('asks the store for each admitted call, and for one refusal a second', async () => {
    const { limiter, clock, asked } = setUp()
    const three = { ...quota, limit: 3 }
    let admitted = 0
    for (let i = 0; i < 20_000; i++) {
      if ((await limiter.decide([three])).admitted) admitted++
      clock.ms += 1
    }
    expect(admitted).toBe(12)
    expect(asked.count - admitted).toBeLessThanOrEqual(20)
  })

  test('asks the store at the instant at which the next call can pass', async () => {
    const { limiter, clock } = setUp()
    await limiter.decide([quota])
    clock.ms += 4500
    await limiter.decide([quota])
    clock.ms += 499.999
    expect(await limiter.decide([quota])).toMatchObject({ admitted: false, cached: true })
    clock.ms += 0.001
    expect(await limiter.decide([quota])).toMatchObject({ admitted: true })
  })

  test('counts the validity of a refusal from before the question, also if the answer comes late', async () => {
    const { limiter, clock, answer, asked } = setUp({ delayed: true })
    const first = limiter.decide([quota])
    const second = limiter.decide([quota])
    clock.ms += 4900
    answer()
    await Promise.all([first, second])
    clock.ms += 100
    const third = limiter.decide([quota])
    answer()
    expect(await third).toMatchObject({ admitted: true })
    expect(asked.count).toBe(3)
  })

  test('reports a wait counted from the arrival of the answer, so that it is never too short', async () => {
    const { limiter, clock, answer } = setUp({ delayed: true })
    const admitted = limiter.decide([quota])
    answer()
    await admitted
    clock.ms += 1500
    const late = limiter.decide([quota])
    clock.ms += 80
    answer()
    expect((await late).refusedBy).toMatchObject({ retryAfterMs: 3500 })
    clock.ms += 20
    expect(await limiter.decide([quota])).toMatchObject({ cached: true, refusedBy: { retryAfterMs: 3480 } })
  })

  test('clears its cache, and does not cache answers to earlier questions', async () => {
    const { limiter, answer, memory, asked } = setUp({ delayed: true })
    const early = [limiter.decide([quota]), limiter.decide([quota])]
    answer()
    for (const decision of early) await decision
    await memory.reset({ named: [], glob: undefined, matches: () => true })
    limiter.forget()
    const fresh = limiter.decide([quota])
    const late = limiter.decide([quota])
    await memory.reset({ named: [], glob: undefined, matches: () => true })
    limiter.forget()
    answer()
    expect((await fresh).admitted).toBe(true)
    expect((await late).admitted).toBe(false)
    const free = limiter.decide([quota])
    answer()
    expect((await free).admitted).toBe(true)
    expect(asked.count).toBe(5)
  })

  test('does not use a cached refusal for another limit or window', async () => {
    const { limiter } = setUp()
    await limiter.decide([quota])
    await limiter.decide([quota])
    expect(await limiter.decide([{ ...quota, limit: 2 }])).toMatchObject({ admitted: true })
  })

  test('does not cache refusals of the fallback', async () => {
    const { limiter, asked } = setUp({ mode: 'local' })
    for (let i = 0; i < 3; i++) await limiter.decide([quota])
    expect(asked.count).toBe(3)
  })

  describe('with several limits,', () => {
    const slow: Quota = { name: 'requests', key: 'p:{a}:requests', limit: 1, windowMs: 30_000, shadow: false }
    const sync = (id: string): Quota => ({ ...quota, key: `p:{a}:sync:${id}` })

    test('reports the longest wait, also if a shorter one is cached', async () => {
      const { limiter, clock } = setUp()
      const requests = { ...slow, windowMs: 3000 }
      await limiter.decide([sync('a')])
      await limiter.decide([requests])
      expect(await limiter.decide([requests])).toMatchObject({ cached: true })
      expect((await limiter.decide([requests, sync('a')])).refusedBy).toMatchObject({
        name: 'sync',
        retryAfterMs: 5000,
      })
      clock.ms += 3001
      expect((await limiter.decide([requests, sync('a')])).refusedBy).toMatchObject({ name: 'sync' })
    })

    test('reports the longest wait, also if another limit was filled since', async () => {
      const { limiter } = setUp()
      const requests = { ...slow, limit: 2 }
      await limiter.decide([requests, sync('a')])
      expect((await limiter.decide([requests, sync('a')])).refusedBy).toMatchObject({ name: 'sync' })
      await limiter.decide([requests, sync('b')])
      expect((await limiter.decide([requests, sync('a')])).refusedBy).toMatchObject({
        name: 'requests',
        retryAfterMs: 30_000,
      })
    })

    test('does not ask if no other limit can have a longer wait, and reports the cached limits', async () => {
      const { limiter, asked } = setUp()
      await limiter.decide([slow])
      expect((await limiter.decide([slow, sync('a')])).allowances.map(({ name }) => name)).toEqual([
        'requests',
      ])
      await limiter.decide([sync('b')])
      const both = await limiter.decide([slow, sync('b')])
      expect(both.allowances.map(({ name, remaining }) => [name, remaining])).toEqual([
        ['requests', 0],
        ['sync', 0],
      ])
      expect(asked.count).toBe(2)
    })

    test('drops a cached allowance with room when a call is charged to its key, also for a shadow limit', async () => {
      const { limiter } = setUp()
      const full = { ...slow, windowMs: 1000 }
      await limiter.decide([full])
      expect((await limiter.decide([full, sync('a')])).refusedBy).toMatchObject({ name: 'requests' })
      await limiter.decide([{ ...sync('a'), shadow: true }])
      expect((await limiter.decide([full, sync('a')])).refusedBy).toMatchObject({
        name: 'sync',
        retryAfterMs: 5000,
      })
    })

    test('asks at most 16 times a second for a full key, also if the other keys are random', async () => {
      const { limiter, clock, asked } = setUp()
      const requests = { ...slow, windowMs: 3000 }
      await limiter.decide([requests])
      for (let i = 0; i < 100; i++) {
        expect((await limiter.decide([requests, sync(`random ${i}`)])).admitted).toBe(false)
        clock.ms += 1
      }
      expect(asked.count).toBe(1 + 16)
      clock.ms += 1000
      for (let i = 0; i < 100; i++) await limiter.decide([requests, sync(`another ${i}`)])
      expect(asked.count).toBeLessThanOrEqual(1 + 16 + 1 + 16)
    })
  })

  describe('with calls of several costs', () => {
    const points = { ...quota, limit: 10, windowMs: 5000 }
    const dear = { ...points, cost: 4 }

    test('caches the refusal of each cost, and lets a cheaper call pass meanwhile', async () => {
      const { limiter, clock, asked } = setUp()
      await limiter.decide([{ ...points, cost: 7 }])
      clock.ms += 100
      expect(await limiter.decide([dear])).toMatchObject({ admitted: false, cached: false })
      expect(await limiter.decide([dear])).toMatchObject({ admitted: false, cached: true })
      expect(await limiter.decide([{ ...points, cost: 5 }])).toMatchObject({ admitted: false, cached: false })
      expect(await limiter.decide([dear])).toMatchObject({ admitted: false, cached: true })
      expect(asked.count).toBe(3)
      clock.ms += 100
      expect(await limiter.decide([points])).toMatchObject({ admitted: true })
    })

    test('forgets the refusals of other costs when a call is charged, since their waits are longer then', async () => {
      const { limiter, clock } = setUp()
      await limiter.decide([{ ...points, cost: 6 }])
      clock.ms += 4500
      const wait = async (cost: number) =>
        (await limiter.decide([{ ...points, cost }])).refusedBy?.retryAfterMs
      expect(await wait(5)).toBe(500)
      expect(await wait(3)).toBeUndefined()
      expect(await wait(5)).toBe(500)
      expect(await wait(8)).toBe(5000)
      clock.ms += 500
      expect(await wait(5)).toBeUndefined()
    })

    test('forgets the refusals of other costs when a call uses up the limit', async () => {
      const { limiter, clock } = setUp()
      const wait = async (cost: number) =>
        (await limiter.decide([{ ...points, cost }])).refusedBy?.retryAfterMs
      await wait(2)
      clock.ms += 1000
      await wait(2)
      expect(await wait(8)).toBe(4000)
      clock.ms += 100
      expect(await wait(6)).toBeUndefined()
      expect(await wait(8)).toBe(5000)
    })

    test('does not take the wait for one point for that of a call that takes more', async () => {
      const { limiter, clock } = setUp()
      await limiter.decide([{ ...points, cost: 2 }])
      clock.ms += 1000
      await limiter.decide([{ ...points, cost: 8 }])
      expect((await limiter.decide([{ ...points, cost: 8 }])).refusedBy?.retryAfterMs).toBe(5000)
      expect((await limiter.decide([dear])).refusedBy?.retryAfterMs).toBe(5000)
      const cheap = await limiter.decide([points])
      expect(cheap.refusedBy?.retryAfterMs).toBe(4000)
      expect((await limiter.decide([dear])).refusedBy?.retryAfterMs).toBe(5000)
    })

    test('reports a wait of a window from now for a limit below the cost', async () => {
      const { limiter, clock } = setUp()
      expect((await limiter.decide([{ ...dear, limit: 3 }])).refusedBy?.retryAfterMs).toBe(5000)
      clock.ms += 900
      const { cached, refusedBy } = await limiter.decide([{ ...dear, limit: 3 }])
      expect([cached, refusedBy?.retryAfterMs, refusedBy?.remaining]).toEqual([true, 5000, 3])
    })
  })

  describe('with two limits of one counter', () => {
    const all = { ...quota, name: 'all', limit: 2 }
    const share = { ...all, name: 'share', limit: 1 }

    test('caches the refusal of each, and not for the other', async () => {
      const { limiter, clock, asked } = setUp()
      await limiter.decide([share])
      clock.ms += 100
      expect(await limiter.decide([share])).toMatchObject({ admitted: false, cached: true })
      expect(await limiter.decide([all])).toMatchObject({ admitted: true })
      expect(await limiter.decide([share])).toMatchObject({ admitted: false, cached: false })
      const waits = [await limiter.decide([share]), await limiter.decide([all])]
      expect(waits).toMatchObject([
        { cached: true, refusedBy: { name: 'share', limit: 1, retryAfterMs: 5000 } },
        { cached: true, refusedBy: { name: 'all', limit: 2, retryAfterMs: 4900 } },
      ])
      expect(asked.count).toBe(3)
    })

    test('reports what a shadow share would have refused of the admitted calls', async () => {
      const { limiter, outcomes } = setUp()
      const quotas = [{ ...all, shadowShares: [{ ...share, shadow: true }] }]
      for (let i = 0; i < 3; i++) await limiter.decide(quotas)
      expect(outcomes).toEqual([
        ['all', 'within'],
        ['share', 'near'],
        ['all', 'near'],
        ['share', 'shadow_over'],
        ['all', 'over_cached'],
      ])
    })
  })

  test('reports a wait of a window from now for a limit of 0', async () => {
    const { limiter, clock } = setUp()
    const none = { ...quota, limit: 0 }
    await limiter.decide([none])
    clock.ms += 600
    expect(await limiter.decide([none])).toMatchObject({
      cached: true,
      refusedBy: { resetAt: 6600, resetAfterMs: 5000, retryAfterMs: 5000 },
    })
  })

  test('caches at most 10,000 refusals', async () => {
    const { limiter, asked } = setUp()
    const none = Array.from({ length: 10_010 }, (_, i) => ({ ...quota, key: `k${i}`, limit: 0 }))
    for (const quota of none) await limiter.decide([quota])
    expect(asked.count).toBe(10_010)
    expect(await limiter.decide([none[10]!])).toMatchObject({ cached: true })
    expect(await limiter.decide([none[9]!])).toMatchObject({ cached: false })
  })

  test('never refuses for a full shadow limit', async () => {
    const { limiter } = setUp()
    const shadow = { ...quota, name: 'trial', key: 'p:{a}:trial', shadow: true }
    const live = { ...quota, limit: 10 }
    for (let i = 0; i < 5; i++) expect(await limiter.decide([live, shadow])).toMatchObject({ admitted: true })
  })

  test('admits a call without limits without asking the store', async () => {
    const { limiter, asked } = setUp()
    expect(await limiter.decide([])).toMatchObject({ admitted: true, allowances: [] })
    expect(asked.count).toBe(0)
  })

  test('reports a call without Redis as near the limit if this gateway has admitted 80 % of its part', async () => {
    const { limiter, outcomes } = partly()
    for (let i = 0; i < 5; i++) await limiter.decide([{ ...quota, limit: 200 }])
    expect(outcomes.map(([, outcome]) => outcome)).toEqual(['within', 'within', 'within', 'near', 'near'])
  })

  test('reports the outcome of each limit to the metrics', async () => {
    const { limiter, outcomes, clock } = setUp()
    const five = { ...quota, name: 'five', key: 'p:{a}:five', limit: 5 }
    const shadow = { ...quota, name: 'trial', key: 'p:{a}:trial', shadow: true }
    for (let i = 0; i < 6; i++) await limiter.decide([five, shadow])
    clock.ms += 1000
    await limiter.decide([five, shadow])
    expect(outcomes.filter(([name]) => name === 'five').map(([, outcome]) => outcome)).toEqual([
      'within',
      'within',
      'within',
      'near',
      'near',
      'over_cached',
      'over',
    ])
    expect(outcomes.filter(([name]) => name === 'trial').map(([, outcome]) => outcome)).toEqual([
      'near',
      'shadow_over',
      'shadow_over',
      'shadow_over',
      'shadow_over',
    ])
  })
})
