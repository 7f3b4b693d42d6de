import { describe, expect, it } from 'vitest'
import { setStage } from './stage.ts'

const WINDOW_MS = 60_000
/** Milliseconds by which the instant of a call may be wrong in an outage. */
const EXACT_MS = 10
const MINUTE = { limit: 9, windowMs: WINDOW_MS }
/** A silence of Redis that outlasts every test. */
const FOR_EVER_MS = 1_000_000

/** Returns the time from an instant to that at which a refused call can pass. */
const passesAfter = (
  { toldAtMs, retryAfterMs }: { readonly toldAtMs: number; readonly retryAfterMs: number },
  fromMs: number,
): number => toldAtMs + retryAfterMs - fromMs

function expectWithin(ms: number, fromMs: number, byMs: number): void {
  expect(ms).toBeGreaterThanOrEqual(fromMs)
  expect(ms).toBeLessThanOrEqual(fromMs + byMs)
}

/** Starts a gateway, and an outage. */
async function setOutage(...params: Parameters<typeof setStage>) {
  const stage = await setStage(...params)
  await stage.silence(FOR_EVER_MS)
  return stage
}

describe('a gateway that never had an answer for a key', () => {
  it('admits a call when an earlier one has left the window', async () => {
    const { call, run } = await setOutage({ ...MINUTE, limit: 2 })
    await call()
    await run(20_000)
    await call()
    await run(40_000 - EXACT_MS)
    expect(await call()).toMatchObject({ admitted: false })
    await run(2 * EXACT_MS)
    expect(await call()).toMatchObject({ admitted: true, mode: 'local' })
    expect(await call()).toMatchObject({ admitted: false, mode: 'local' })
  })

  it('states that the limit grows when the first call leaves, and now if there are none', async () => {
    const { call, read, run, now } = await setOutage({ ...MINUTE, limit: 10 })
    expect(await read()).toMatchObject({ remaining: 10, resetAfterMs: 0 })
    const { toldAtMs } = await call()
    for (const left of [9, 8]) {
      const { remaining, resetAfterMs } = await read()
      expect(remaining).toBe(left)
      expectWithin(now() + resetAfterMs - toldAtMs, WINDOW_MS, 2 * EXACT_MS)
      await run(20_000)
      await call()
    }
  })

  it('lets a call that costs several points wait until as many have left', async () => {
    const { call, run, now } = await setOutage(MINUTE)
    const fromMs = now()
    // 3 points, 4 more after 10 s, and 2 more after 20 s: of 9.
    for (const cost of [3, 4, 2]) {
      expect(await call({ cost })).toMatchObject({ admitted: true })
      await run(10_000)
    }
    for (const [cost, passesMs] of [
      [1, 60_000],
      [3, 60_000],
      [4, 70_000],
      [7, 70_000],
      [8, 80_000],
    ] as const)
      expectWithin(passesAfter(await call({ cost }), fromMs), passesMs, 2 * EXACT_MS)
  })

  it('lets a call that costs more than the limit wait for a window', async () => {
    const { call, read } = await setOutage(MINUTE)
    expect(await call({ cost: 10 })).toMatchObject({ admitted: false, retryAfterMs: WINDOW_MS })
    expect(await read()).toMatchObject({ remaining: 9 })
  })

  it('admits a limit of thousands in the next calendar period, too', async () => {
    const periodMs = 450_000
    const { calls, runTo } = await setOutage({ limit: 2000, windowMs: periodMs, kind: 'calendar' })
    // The calls before and after the end at 50 s are in the same thousandth of a period.
    await runTo(49_960)
    expect((await calls(1500)).admitted).toHaveLength(1500)
    expect((await calls(2001)).admitted).toHaveLength(2000)
  })

  it('settles a call under the limits that it counts, also if another of its limits admits every call', async () => {
    const both = ['requests', 'sync'] as const
    const { call, read } = await setOutage({ ...MINUTE, onOutage: 'allow' }, { sync: MINUTE })
    const told = await call({ names: both, cost: 5 })
    expect(told).toMatchObject({ admitted: true, mode: 'local' })
    told.settle(() => 2)
    expect(await read({ names: ['sync'] })).toMatchObject({ used: 2, remaining: 7 })
  })
})

describe('a gateway that lost Redis', () => {
  it('counts calls that Redis has as what they used, and Redis does when it is back', async () => {
    const { call, silence, read, run } = await setStage(MINUTE)
    const [first, second] = [await call({ cost: 4 }), await call({ cost: 4 })]
    expect(second).toMatchObject({ admitted: true, mode: 'store' })
    await silence(5000)
    first.settle(() => 0)
    expect(await read()).toMatchObject({ remaining: 5 })
    second.settle(() => 7)
    expect(await read()).toMatchObject({ remaining: 2 })
    await run(6000)
    expect(await read()).toMatchObject({ remaining: 2 })
    await silence(FOR_EVER_MS)
    await run(WINDOW_MS)
    expect(await read()).toMatchObject({ remaining: 9 })
  })

  it('knows when a call of each cost can pass that Redis refused', async () => {
    const { call, silence, now, runTo } = await setStage(MINUTE)
    const fromMs = now()
    await call({ cost: 3 })
    await runTo(fromMs + 10_000)
    await call({ cost: 4 })
    await runTo(fromMs + 30_000)
    expect(await call({ cost: 2 })).toMatchObject({ admitted: true })
    await runTo(fromMs + 50_000)
    for (const cost of [7, 1, 8])
      expect(await call({ cost })).toMatchObject({ admitted: false, mode: 'store' })
    await silence(FOR_EVER_MS)
    await runTo(fromMs + 52_000)
    for (const [cost, passesMs] of [
      [1, 60_000],
      // Not asked for: all points but the first to leave may leave as late as those of the cost of 7.
      [3, 70_000],
      [7, 70_000],
      [8, 90_000],
    ] as const) {
      const told = await call({ cost })
      expect(told).toMatchObject({ admitted: false, mode: 'local' })
      expectWithin(passesAfter(told, fromMs), passesMs, EXACT_MS)
    }
    await runTo(fromMs + 70_000 + EXACT_MS)
    expect(await call({ cost: 8 })).toMatchObject({ admitted: false })
    expect(await call({ cost: 7 })).toMatchObject({ admitted: true, mode: 'local' })
  })

  it('does not take the wait of an earlier refusal for that of the points that were charged since', async () => {
    const { call, silence, now, runTo } = await setStage(MINUTE)
    const fromMs = now()
    await call({ cost: 7 })
    await runTo(fromMs + 30_000)
    await call({ cost: 2 })
    expect(await call({ cost: 7 })).toMatchObject({ admitted: false, mode: 'store' })
    await runTo(fromMs + 61_000)
    expect(await call({ cost: 7 })).toMatchObject({ admitted: true, mode: 'store' })
    await silence(FOR_EVER_MS)
    await runTo(fromMs + 65_000)
    expect(await call({ cost: 7 })).toMatchObject({ admitted: false, mode: 'local' })
    expect(await call({ cost: 1 })).toMatchObject({ admitted: false, mode: 'local' })
  })

  it.each([
    ['before', ['requests', 'sync']],
    ['after', ['sync', 'requests']],
  ] as const)(
    'knows when calls of a limit can pass, and those of its share, if Redis refused the former %s the latter',
    async (_, order) => {
      const { call, silence, read, now, runTo } = await setStage(MINUTE, {
        sync: { ...MINUTE, limit: 3, counts: 'requests' },
      })
      const fromMs = now()
      await call()
      await runTo(fromMs + 30_000)
      await call({ cost: 7 })
      await runTo(fromMs + 40_000)
      await call()
      for (const name of order)
        expect(await call({ names: [name] })).toMatchObject({ admitted: false, mode: 'store' })
      await silence(FOR_EVER_MS)
      await runTo(fromMs + 60_000 - EXACT_MS)
      expect(await read()).toMatchObject({ admitted: false })
      await runTo(fromMs + 60_000 + EXACT_MS)
      expect(await read()).toMatchObject({ admitted: true })
      await runTo(fromMs + 90_000 - EXACT_MS)
      expect(await read({ names: ['sync'] })).toMatchObject({ admitted: false })
      await runTo(fromMs + 90_000 + EXACT_MS)
      expect(await read({ names: ['sync'] })).toMatchObject({ admitted: true })
    },
  )

  it('counts a call that Redis admitted as soon as its wait was over', async () => {
    // Redis is known to decide earlier by faster answers.
    const { call, silence, run, runTo, setDelay } = await setStage({ ...MINUTE, limit: 3 }, { delayMs: 5 })
    await call({ cost: 3 })
    await run(50_000)
    const refused = await call({ cost: 3 })
    expect(refused).toMatchObject({ admitted: false, mode: 'store' })
    setDelay(0.05)
    await run(5000)
    await runTo(refused.toldAtMs + refused.retryAfterMs - 20)
    let told = refused
    while (!told.admitted) told = await call({ cost: 3 })
    expect(told).toMatchObject({ mode: 'store' })
    await silence(FOR_EVER_MS)
    expect(await call({ cost: 3 })).toMatchObject({ admitted: false, mode: 'local' })
    expect(await call()).toMatchObject({ admitted: false, mode: 'local' })
  })
})
