import { expect, it } from 'vitest'
import { setStage } from './stage.ts'

const WINDOW_MS = 60_000
const ACCESS_MS = WINDOW_MS / 4
/** An access is exact to this in an outage. */
const EXACT_MS = 10

it('continues an access that Redis has charged when Redis is out of reach, for as long as it lasts', async () => {
  const { calls, hang, run, now } = await setStage({ limit: 1, windowMs: WINDOW_MS, kind: 'access' })
  const begunAtMs = now()
  expect((await calls(1)).admitted).toMatchObject([{ mode: 'store' }])
  hang(30_000)
  await run(5000)
  expect((await calls(3)).admitted).toMatchObject([{ mode: 'local' }, { mode: 'local' }, { mode: 'local' }])
  await run(begunAtMs + ACCESS_MS - EXACT_MS - now())
  expect((await calls(1)).admitted).toMatchObject([{ mode: 'local' }])
  expect((await calls(1)).all).toMatchObject([{ admitted: false, mode: 'local' }])
})

it('ends an access that Redis has charged within 10 ms when Redis is out of reach', async () => {
  const { calls, hang, run, now } = await setStage({ limit: 1, windowMs: WINDOW_MS, kind: 'access' })
  const begunAtMs = now()
  await calls(1)
  hang(30_000)
  await run(begunAtMs + ACCESS_MS + EXACT_MS - now())
  expect((await calls(1)).admitted).toHaveLength(0)
})

it('continues an access that the fallback has charged when Redis is back', async () => {
  const { calls, hang, run, now } = await setStage({ limit: 1, windowMs: WINDOW_MS, kind: 'access' })
  hang(6000)
  await run(3500)
  const begunAtMs = now()
  expect((await calls(1)).admitted).toMatchObject([{ mode: 'local' }])
  await run(begunAtMs + ACCESS_MS - EXACT_MS - now())
  expect((await calls(2)).admitted).toMatchObject([{ mode: 'store' }, { mode: 'store' }])
  expect((await calls(1)).all).toMatchObject([{ admitted: false, mode: 'store' }])
})
