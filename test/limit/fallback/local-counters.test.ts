import { expect, test } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import type { Addition } from '../../../src/limit/store.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

test('local counters forget a key when its calls have left the window, and add it to no question', async () => {
  let nowMs = 1000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = createLocalCounters(clock, { spreadMs: () => 0, dateAt: () => 0 }, () => true)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 1, windowMs: 60_000, shadow: false }
  const additionsOf = () => local.ask([quota], async (additions: readonly Addition[]) => additions.length)
  expect(local.charge([quota], 1).admitted).toBe(true)
  expect(local.pending(() => true)).toEqual([quota])
  nowMs += 60_000 + 10
  // Each turn visits the keys that follow those of the last.
  for (let turn = 0; turn < 2; turn++) expect(local.pending(() => true)).toEqual([])
  expect(await additionsOf()).toBe(0)
})

test('local counters reset when the first call leaves, while some remain, and at once when all do', () => {
  const clock = { ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 }
  const local = createLocalCounters(clock, { spreadMs: () => 0, dateAt: () => 0 }, () => true)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 10, windowMs: 60_000, shadow: false }
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 10, resetAfterMs: 0 }])
  const [allowance] = local.charge([quota], 1).allowances
  expect(allowance).toMatchObject({ remaining: 9, retryAfterMs: 0 })
  expect(allowance!.resetAfterMs).toBeGreaterThanOrEqual(60_000)
})
