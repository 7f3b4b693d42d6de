import { describe, expect, it } from 'vitest'
import { hashTagOf } from './halves.ts'
import type { Told } from './gateway.ts'
import { setStage } from './stage.ts'

const MINUTE_MS = 60_000
const MINUTE = { limit: 20, windowMs: MINUTE_MS }
/** Short calendar periods: one begins with the history. */
const SUCCESSES = { limit: 10, windowMs: 10_000, kind: 'success' } as const
const ACCESSES = { limit: 4, windowMs: MINUTE_MS, kind: 'access' } as const
const ACCESS_MS = MINUTE_MS / 4

describe('several gateways', () => {
  it('admit the limit twice at most if they lose Redis one after the other', async () => {
    const limit = 60
    const { hang, run, calls } = await setStage({ limit, windowMs: MINUTE_MS }, { gateways: 6 })
    const apartMs = 11_000
    for (let i = 0; i < 6; i++) {
      hang(6 * apartMs, i)
      await run(apartMs)
    }
    let admitted = 0
    for (let i = 0; i < 6; i++) admitted += (await calls(limit, i)).admitted.length
    expect(admitted).toBeLessThanOrEqual(2 * limit)
  })

  it('count one access once, though an answer at each is late', async () => {
    const { calls, hang, run } = await setStage(ACCESSES, { gateways: 4 })
    expect((await calls(1, 0)).admitted).toHaveLength(1)
    for (const gateway of [1, 2, 3]) {
      hang(130, gateway)
      expect((await calls(1, gateway)).admitted).toHaveLength(1)
    }
    for (const access of [2, 3, 4]) {
      await run(ACCESS_MS)
      expect({ access, ...(await calls(1)) }).toMatchObject({ access, admitted: [{}] })
    }
    await run(1000)
    expect((await calls(1)).admitted).toHaveLength(1)
  })

  it('count one access once, though each counts a call of it by itself', async () => {
    const { calls, hang, run } = await setStage(ACCESSES, { gateways: 4 })
    hang(3000)
    await run(1000)
    for (const gateway of [0, 1, 2, 3]) expect((await calls(1, gateway)).admitted).toHaveLength(1)
    for (const access of [2, 3, 4]) {
      await run(ACCESS_MS)
      expect({ access, ...(await calls(1)) }).toMatchObject({ access, admitted: [{}] })
    }
  })

  it('admit no further call when Redis is back, and state the waits of the instants of their calls', async () => {
    const { begin, calls, hang, run, now } = await setStage(
      { limit: 1000, windowMs: MINUTE_MS },
      { gateways: 2 },
    )
    hang(20_000)
    // No call waits for Redis any more.
    await run(5000)
    const firstAtMs = now()
    const told = []
    for (let i = 0; i < 500; i++) {
      told.push(begin(0))
      await run(10)
      told.push(begin(1))
      await run(10)
    }
    expect((await Promise.all(told)).filter(({ admitted }) => admitted)).toHaveLength(1000)
    await run(6000)
    for (const gateway of [0, 1]) {
      const { all } = await calls(1, gateway)
      expect(all[0]).toMatchObject({ admitted: false })
      const { toldAtMs, retryAfterMs } = all[0]!
      const lateMs = toldAtMs + retryAfterMs - firstAtMs - MINUTE_MS
      // The clocks are known to 10 ms.
      expect(lateMs).toBeGreaterThanOrEqual(0)
      expect(lateMs).toBeLessThanOrEqual(20)
    }
    await run(firstAtMs + MINUTE_MS + 100 - now())
    // A call of the outage has left every 10 ms.
    const { admitted } = await calls(50)
    expect(admitted.length).toBeGreaterThanOrEqual(8)
    expect(admitted.length).toBeLessThanOrEqual(11)
  })

  it('share a limit by the number of those that are left after slots have moved', async () => {
    const { calls, deployment, gateways, hang, run } = await setStage(MINUTE, {
      ...{ gateways: 4, isCluster: true },
    })
    deployment.tags = [hashTagOf(0, 100), hashTagOf(1, 100)]
    await Promise.all([2, 3].map((i) => gateways[i]!.end(true)))
    await run(25_000)
    hang(5000)
    await run(1000)
    expect((await calls(20)).admitted).toHaveLength(10)
  })
})

it('merges the calls of an outage once if the answer to the merge is lost', async () => {
  const { calls, hang, run, loseAnswer } = await setStage(MINUTE)
  hang(2000)
  await run(1000)
  expect((await calls(15)).admitted).toHaveLength(15)
  // The answers that the silence held have come.
  await run(760)
  loseAnswer()
  await run(5000)
  expect((await calls(10)).admitted).toHaveLength(5)
})

describe('calls that are settled', () => {
  /** Settles calls to nothing. */
  const settle = (calls: readonly Told[]): void => {
    for (const call of calls) call.settle(() => 0)
  }

  it('are settled if a call of the period before is, too', async () => {
    const { calls, hang, run } = await setStage(SUCCESSES)
    const before = await calls(1)
    await run(8000)
    const { admitted } = await calls(8)
    expect(admitted).toHaveLength(8)
    hang(3000)
    await run(1000)
    settle([...admitted, ...before.admitted])
    await run(4000)
    expect((await calls(11)).admitted).toHaveLength(10)
  })

  it.each(['silent', 'read-only', 'full'] as const)(
    'are settled if Redis is %s for a moment',
    async (fault) => {
      const { calls, hang, run, model } = await setStage(SUCCESSES)
      const { admitted } = await calls(10)
      expect(admitted).toHaveLength(10)
      if (fault === 'silent') hang(130)
      else model[fault === 'full' ? 'isFull' : 'isReadOnly'] = true
      settle(admitted)
      await run(200)
      model.isFull = model.isReadOnly = false
      await run(1500)
      expect((await calls(11)).admitted).toHaveLength(10)
    },
  )
})

it('refuses calls of a limit of accesses from memory', async () => {
  const { calls, callsEvery, run, seen } = await setStage({ ...ACCESSES, limit: 1 })
  expect((await calls(1)).admitted).toHaveLength(1)
  await run(ACCESS_MS)
  seen.questions = 0
  const told = await callsEvery(1, 1000)
  expect(told.filter(({ admitted }) => admitted)).toHaveLength(0)
  expect(seen.questions).toBeLessThan(20)
})

it('occupies Redis for milliseconds only when it gets the calls of an outage', async () => {
  const { begin, hang, run, seen } = await setStage({ limit: 1000, windowMs: MINUTE_MS }, { scriptUs: 1 })
  const clients = Array.from({ length: 12 }, (_, i) => `c${i}`)
  hang(4000)
  await run(1000)
  const told = []
  for (let i = 0; i < 500; i++) {
    for (const client of clients) told.push(begin(0, client))
    await run(4)
  }
  expect((await Promise.all(told)).every(({ admitted }) => admitted)).toBe(true)
  // All clients call again as soon as Redis answers.
  for (let i = 0; i < 200; i++) {
    for (const client of clients) void begin(0, client)
    await run(10)
  }
  await run(250)
  expect(seen.longestScriptMs).toBeGreaterThan(0)
  expect(seen.longestScriptMs).toBeLessThan(5)
})
