import { describe, expect, it } from 'vitest'
import { setStage } from './stage.ts'

const LEASE_MS = 2000
const AT_ONCE = { limit: 2, windowMs: LEASE_MS, kind: 'atOnce' } as const

describe('calls at once', () => {
  it('give their place back at their end, though Redis has lost the script that renews them', async () => {
    const { calls, model, run, seen } = await setStage(AT_ONCE)
    const { admitted } = await calls(2)
    model.flushScripts()
    seen.questions = 0
    while (seen.questions === 0) await run(0.1)
    // The renewal is under way, and is sent again with its script.
    for (const call of admitted) call.release()
    await run(5)
    expect((await calls(2)).admitted).toHaveLength(2)
  })

  it('lose no place by an answer that is lost', async () => {
    const { calls, loseAnswer, run } = await setStage({ ...AT_ONCE, windowMs: 30_000 }, { gateways: 2 })
    loseAnswer(0)
    for (const call of (await calls(1, 0)).admitted) call.release()
    await run(1000)
    expect((await calls(3, 1)).admitted).toHaveLength(2)
  })

  it('are refused without Redis while those of the gateway fill the limit', async () => {
    const { calls, seen } = await setStage(AT_ONCE)
    const { admitted } = await calls(2)
    seen.questions = 0
    expect((await calls(20)).admitted).toHaveLength(0)
    expect(seen.questions).toBe(0)
    admitted[0]!.release()
    expect((await calls(20)).admitted).toHaveLength(1)
  })

  it('take no memory of a full Redis', async () => {
    const { calls, model } = await setStage({ ...AT_ONCE, limit: 5 })
    await calls(1)
    model.isFull = true
    expect((await calls(1)).all).toMatchObject([{ admitted: true, mode: 'local' }])
  })

  it('that were admitted without Redis count until it has them, though it was full when they were sent', async () => {
    const { calls, model, run } = await setStage({ ...AT_ONCE, limit: 3 })
    model.isFull = true
    expect((await calls(2)).admitted).toMatchObject([{ mode: 'local' }, { mode: 'local' }])
    // Calls are decided, and leases renewed, as long as the breaker is closed.
    await run(5)
    model.isFull = false
    await run(300)
    expect((await calls(3)).admitted).toHaveLength(1)
  })

  it('last as long as they do, beyond a lease', async () => {
    const { calls, run } = await setStage(AT_ONCE, { gateways: 2 })
    const { admitted } = await calls(2, 0)
    for (let ms = 0; ms < 3 * LEASE_MS; ms += 500) {
      await run(250)
      expect((await calls(1, 1)).admitted).toHaveLength(0)
    }
    for (const call of admitted) call.release()
    expect((await calls(3, 1)).admitted).toHaveLength(2)
  })

  it.each([
    ['10 seconds', 30_000, 10_000],
    ['a lease, if that is shorter', 4000, 4000],
  ])('whose callers leave keep their places for %s, at every gateway', async (_, windowMs, keptMs) => {
    const { calls, run, now } = await setStage({ ...AT_ONCE, limit: 3, windowMs }, { gateways: 2 })
    const { admitted } = await calls(2, 0)
    await run(windowMs)
    const leftAt = now()
    for (const call of admitted) call.release(true)
    while (now() < leftAt + keptMs - 1200) {
      for (const gateway of [0, 1]) {
        const one = await calls(2, gateway)
        expect(one.admitted).toHaveLength(1)
        one.admitted[0]!.release()
        await run(50)
      }
    }
    await run(1300)
    for (const gateway of [0, 1]) {
      const three = await calls(4, gateway)
      expect(three.admitted).toHaveLength(3)
      for (const call of three.admitted) call.release()
      await run(50)
    }
  })

  it('whose callers leave keep their places when their gateway ends, and for no longer', async () => {
    const { calls, gateways, run } = await setStage({ ...AT_ONCE, windowMs: 30_000 }, { gateways: 2 })
    const { admitted } = await calls(2, 0)
    for (const call of admitted) call.release(true)
    const ending = gateways[0]!.end(true)
    await run(50)
    await ending
    await run(9000)
    expect((await calls(1, 1)).admitted).toHaveLength(0)
    await run(1000)
    expect((await calls(3, 1)).admitted).toHaveLength(2)
  })

  it('whose callers leave without Redis keep their places, also after its data were lost', async () => {
    const { calls, hang, model, run } = await setStage({ ...AT_ONCE, windowMs: 30_000 }, { gateways: 2 })
    const { admitted } = await calls(2, 0)
    hang(3000)
    for (const call of admitted) call.release(true)
    await run(2500)
    expect((await calls(1, 0)).admitted).toHaveLength(0)
    model.restart(undefined, { keepScripts: true })
    await run(4000)
    for (const gateway of [0, 1]) expect((await calls(1, gateway)).admitted).toHaveLength(0)
    await run(4000)
    expect((await calls(3, 1)).admitted).toHaveLength(2)
  })

  it('of a gateway that is suspended for longer than a lease count again when it runs', async () => {
    const { calls, gateways, run } = await setStage(AT_ONCE, { gateways: 2 })
    await calls(2, 0)
    gateways[0]!.loop.stall(2 * LEASE_MS)
    await run(2 * LEASE_MS - 500)
    const { admitted } = await calls(3, 1)
    expect(admitted).toHaveLength(2)
    await run(1000)
    admitted[0]!.release()
    expect((await calls(3, 1)).admitted).toHaveLength(0)
  })

  it('count in addition to those of Redis when it has lost them', async () => {
    const { calls, model, run } = await setStage({ ...AT_ONCE, limit: 3 }, { gateways: 2 })
    const first = await calls(2, 0)
    model.restart(undefined, { keepScripts: true })
    // The first answer shows the loss.
    expect((await calls(1, 0)).admitted).toHaveLength(1)
    expect((await calls(1, 0)).admitted).toHaveLength(0)
    await run(500)
    expect((await calls(1, 1)).admitted).toHaveLength(0)
    for (const call of first.admitted) call.release()
    expect((await calls(3, 1)).admitted).toHaveLength(2)
  })
})
