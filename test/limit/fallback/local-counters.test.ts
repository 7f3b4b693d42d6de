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
