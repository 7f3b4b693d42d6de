import { expect, it } from 'vitest'
import { setStage } from './stage.ts'
import { serverMicroseconds } from './time.ts'

const WINDOW_MS = 60_000
/** Time of a message to Redis. */
const DELAY_MS = 0.25

/** Makes calls 0.337 ms after each other, and returns the expiry of their key and the instant of the last. */
async function expiryAfter(count: number, rule: Parameters<typeof setStage>[0], fractionMs: number) {
  const { calls, run, now, model } = await setStage(rule)
  await run(fractionMs)
  let chargedAtUs = 0
  for (let i = 0; i < count; i++) {
    chargedAtUs = serverMicroseconds(now() + DELAY_MS, 0)
    await calls(1)
    await run(0.337)
  }
  const [key] = model.run('KEYS', ['s:{c1}:requests']) as readonly string[]
  const nowMs = Math.floor(serverMicroseconds(now(), 0) / 1000)
  return { chargedAtUs, expiresAtMs: nowMs + Number(model.run('PTTL', [key!])) }
}

it.each([0, 0.001, 0.5, 0.748, 0.749, 0.75, 0.999])(
  'keeps a key for a window from its newest call, to the millisecond: %d ms into one',
  async (fractionMs) => {
    for (const [limit, count] of [
      [5, 1],
      [50, 20],
      [5000, 3],
    ] as const) {
      const { chargedAtUs, expiresAtMs } = await expiryAfter(
        count,
        { limit, windowMs: WINDOW_MS },
        fractionMs,
      )
      // Redis removes a key after this whole millisecond.
      expect(expiresAtMs).toBe(Math.floor(chargedAtUs / 1000) + WINDOW_MS)
    }
  },
)

it.each([0, 0.4, 0.75, 0.999])(
  'keeps the key of a calendar period to its end, to the millisecond: %d ms into one',
  async (fractionMs) => {
    const rule = { limit: 5, windowMs: WINDOW_MS, kind: 'calendar' } as const
    const { chargedAtUs, expiresAtMs } = await expiryAfter(2, rule, fractionMs)
    expect(expiresAtMs).toBe((Math.floor(chargedAtUs / 1000 / WINDOW_MS) + 1) * WINDOW_MS)
  },
)
