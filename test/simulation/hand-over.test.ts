import { describe, expect, it } from 'vitest'
import type { Told } from './gateway.ts'
import { setStage } from './stage.ts'

const WINDOW_MS = 60_000
const MINUTE = { limit: 9, windowMs: WINDOW_MS }
const ACCESSES = { ...MINUTE, kind: 'access' } as const
const ACCESS_MS = WINDOW_MS / 4

/** Returns the different outcomes of calls. */
const outcomesOf = (calls: readonly Told[]): readonly string[] => [
  ...new Set(calls.map(({ admitted, mode }) => `${admitted ? 'admitted' : 'refused'} by ${mode}`)),
]

/** Starts a gateway, and a silence of Redis that lasts `ms`. */
async function setOutage(ms: number, ...params: Parameters<typeof setStage>) {
  const stage = await setStage(...params)
  const untilMs = stage.now() + ms
  await stage.silence(ms)
  return {
    ...stage,
    /** Runs until Redis answers, just before it gets the calls of the silence. */
    untilAnswered: () => stage.runTo(untilMs + 10),
    /** Runs until Redis has the calls of the silence. */
    untilHandedOver: () => stage.runTo(untilMs + 2000),
  }
}

describe('the calls of an outage', () => {
  it('count as soon as Redis answers, before it has them', async () => {
    const { ask, calls, hang, run } = await setStage(MINUTE)
    hang(100)
    const own = [ask({}), ask({})]
    await run(110)
    expect(outcomesOf(await Promise.all(own))).toEqual(['admitted by local'])
    const { all, admitted } = await calls(9)
    expect(admitted).toHaveLength(7)
    expect(outcomesOf(all)).toEqual(['admitted by store', 'refused by store'])
  })

  it('count once in Redis if the answer to a merge is lost, and so does one that came meanwhile', async () => {
    const { call, calls, run, untilAnswered, untilAnswerIsLost } = await setOutage(2000, MINUTE)
    expect((await calls(3)).admitted).toHaveLength(3)
    await untilAnswered()
    await untilAnswerIsLost()
    expect(await call()).toMatchObject({ admitted: true, mode: 'local' })
    await run(2000)
    expect((await calls(9)).admitted).toHaveLength(5)
  })

  it('count once in the next outage if an answer to a later question was first to show the merge', async () => {
    const { call, calls, silence, read, run, untilAnswered, untilAnswerIsLost } = await setOutage(
      2000,
      MINUTE,
    )
    expect((await calls(3)).admitted).toHaveLength(3)
    await untilAnswered()
    await untilAnswerIsLost()
    await run(60)
    expect(await call()).toMatchObject({ admitted: true, mode: 'store' })
    await silence(5000)
    expect(await read()).toMatchObject({ used: 4, remaining: 5 })
    expect((await calls(9)).admitted).toHaveLength(5)
    await run(7000)
    expect(await read()).toMatchObject({ used: 9 })
  })

  it('count in the next outage, and after it, if a merge was lost', async () => {
    const { calls, silence, run, untilAnswered, untilQuestionIsLost } = await setOutage(2000, MINUTE)
    expect((await calls(10)).admitted).toHaveLength(9)
    await untilAnswered()
    await untilQuestionIsLost()
    for (let i = 0; i < 2; i++) {
      await silence(2000)
      expect(outcomesOf((await calls(10)).all)).toEqual(['refused by local'])
      await run(750)
    }
    await run(2000)
    expect(outcomesOf((await calls(10)).all)).toEqual(['refused by store'])
  })

  it('count before and after accesses are configured', async () => {
    const { call, callsEvery, calls, change, read, run, untilHandedOver } = await setOutage(35_000, MINUTE)
    await callsEvery(1, 5)
    change(ACCESSES)
    for (let i = 0; i < 3; i++) {
      await run(i === 0 ? 0 : ACCESS_MS + 100)
      expect(outcomesOf((await calls(2)).all)).toEqual(['admitted by local'])
    }
    await untilHandedOver()
    // The last access goes on.
    expect(await call()).toMatchObject({ admitted: true, mode: 'store' })
    expect(await read()).toMatchObject({ used: 8 })
  })

  it('count by the points of the call that began an access', async () => {
    const { call, read, untilHandedOver } = await setOutage(2000, ACCESSES)
    expect(await call({ cost: 4 })).toMatchObject({ admitted: true, mode: 'local' })
    await untilHandedOver()
    expect(await read()).toMatchObject({ used: 4 })
  })

  it('are each of the access of their token, in the next outage too', async () => {
    const byTokens = { limit: 20, windowMs: WINDOW_MS, together: 'token' } as const
    const { call, silence, read, run, untilHandedOver } = await setOutage(2000, byTokens)
    const tokens = Array.from({ length: 20 }, (_, i) => `token ${i}`)
    for (const token of tokens) expect(await call({ token })).toMatchObject({ admitted: true, mode: 'local' })
    await untilHandedOver()
    expect(await read()).toMatchObject({ used: 20 })
    await silence(3000)
    for (const mode of ['local', 'store']) {
      for (const token of tokens) expect(await call({ token })).toMatchObject({ admitted: true, mode })
      expect(await call({ token: 'another' })).toMatchObject({ admitted: false, mode })
      await run(3000)
    }
  })
})

describe('the calls of an outage that are settled', () => {
  it('are settled at the gateway, or at Redis if that may have them', async () => {
    // Redis finds a call to a thousandth of the window: 5 ms, less than the 10 ms that are unknown of its instant.
    const { call, read, run, untilAnswered, untilAnswerIsLost } = await setOutage(2000, {
      ...MINUTE,
      windowMs: 5000,
    })
    const sent = await call({ cost: 4 })
    await untilAnswered()
    await untilAnswerIsLost()
    const own = await call({ cost: 4 })
    expect(own).toMatchObject({ admitted: true, mode: 'local' })
    own.settle(() => 1)
    expect(await read()).toMatchObject({ used: 5 })
    sent.settle(() => 0)
    await run(2000)
    expect(await read()).toMatchObject({ used: 1, remaining: 8 })
  })

  it('are settled at Redis when it has them, although it answers before', async () => {
    const { call, read, run, untilAnswered, untilQuestionIsLost } = await setOutage(2000, MINUTE)
    const sent = await call({ cost: 5 })
    await untilAnswered()
    await untilQuestionIsLost()
    await run(60)
    expect(await call({ client: 'c2' })).toMatchObject({ admitted: true, mode: 'store' })
    sent.settle(() => 3)
    await run(2000)
    expect(await read()).toMatchObject({ used: 3 })
  })

  it('to nothing do not shorten the wait for others', async () => {
    const { call, calls, read, run, now, untilHandedOver } = await setOutage(14_000, MINUTE)
    ;(await call()).settle(() => 0)
    await run(10_000)
    const fromMs = now()
    expect((await calls(10)).admitted).toHaveLength(9)
    await untilHandedOver()
    expect(await read()).toMatchObject({ used: 9 })
    const { admitted, mode, toldAtMs, retryAfterMs } = await call()
    expect({ admitted, mode }).toEqual({ admitted: false, mode: 'store' })
    expect(toldAtMs + retryAfterMs).toBeGreaterThanOrEqual(fromMs + WINDOW_MS)
  })

  it('count once if an answer about them is lost, and so do others that are settled meanwhile', async () => {
    const { call, loseAnswer, read, run } = await setStage({ ...MINUTE, limit: 30 })
    const [first, second] = [await call({ cost: 5 }), await call({ cost: 5 })]
    loseAnswer()
    first.settle(() => 4)
    await run(1)
    second.settle(() => 7)
    await run(2000)
    expect(await read()).toMatchObject({ used: 11 })
  })
})

describe('a reset', () => {
  it('drops the calls that Redis has, and those that it does not have', async () => {
    const { calls, model, reset, run } = await setStage(MINUTE)
    expect(outcomesOf((await calls(4)).all)).toEqual(['admitted by store'])
    model.isFull = true
    expect(outcomesOf((await calls(5)).all)).toEqual(['admitted by local'])
    expect(outcomesOf((await calls(9)).all)).toEqual(['refused by local'])
    const ended = reset()
    await run(5)
    await ended
    expect(outcomesOf((await calls(9)).all)).toEqual(['admitted by local'])
    expect(outcomesOf((await calls(9)).all)).toEqual(['refused by local'])
    model.isFull = false
    await run(2000)
    expect(outcomesOf((await calls(9)).all)).toEqual(['refused by store'])
  })

  /**
   * Starts a gateway with a call in Redis, and a merge of others on its way. A message takes a millisecond, and Redis has lost its
   * scripts: it has the merge after 3 ms. A reset, or a call, takes 4 ms, and reaches Redis after the merge.
   */
  async function setMerge(tokens: readonly string[]) {
    const rule = { limit: 2000, windowMs: WINDOW_MS, together: 'token' } as const
    const stage = await setStage(rule, { delayMs: 1 })
    const { ask, call, model, now, run, silence, untilAsked } = stage
    await call({ token: 'first' })
    await silence(1500)
    const told = tokens.map((token) => ask({ token }))
    await run(1)
    expect(outcomesOf(await Promise.all(told))).toEqual(['admitted by local'])
    model.flushScripts()
    await untilAsked()
    const sentAtMs = now()
    return { ...stage, runTo: (ms: number): Promise<void> => stage.runTo(sentAtMs + ms) }
  }

  it('drops the calls that are to be merged after those that are under way', async () => {
    // A merge has a thousand of them at most.
    const { read, reset, run, runTo } = await setMerge(Array.from({ length: 1010 }, (_, i) => `token ${i}`))
    await runTo(0.2)
    const ended = reset()
    await run(2000)
    await ended
    expect(await read()).toMatchObject({ used: 0 })
  })

  it('drops no call that came afterwards, although a merge of others was under way', async () => {
    const { ask, model, read, reset, run, runTo } = await setMerge(['second', 'third'])
    await runTo(0.2)
    const ended = reset()
    await runTo(2.5)
    const told = ask({ token: 'fourth' })
    await runTo(3.4)
    model.isFull = true
    await runTo(7)
    model.isFull = false
    await ended
    expect(await told).toMatchObject({ admitted: true, mode: 'local' })
    await run(2000)
    expect(await read()).toMatchObject({ used: 1 })
  })
})
