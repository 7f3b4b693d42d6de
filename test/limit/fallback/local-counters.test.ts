import { expect, test } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

test('local counters forget a key when its calls have left the window, and hand over nothing of it', () => {
  let nowMs = 1000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = createLocalCounters(
    clock,
    { spreadMs: () => 0, dateAt: () => 0 },
    () => true,
    () => true,
  )
  const quota = { name: 'x', key: 'p:{a}:x', limit: 1, windowMs: 60_000, shadow: false }
  const merges = () => Array.from(local.merges(), ({ merge }) => merge.quota)
  expect(local.charge([quota], 1).admitted).toBe(true)
  expect(local.own()!.since(quota.key, 0)).toMatchObject({ calls: 1 })
  expect(merges()).toEqual([quota])
  nowMs += 60_000 + 10
  expect(local.own()!.since(quota.key, nowMs - 60_000)).toBeUndefined()
})

test('local counters send an unsure merge again with its number, and keep what came meanwhile', () => {
  const clock = { ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 }
  const local = createLocalCounters(
    clock,
    { spreadMs: () => 0, dateAt: () => 0 },
    () => true,
    () => true,
  )
  const quota = { name: 'x', key: 'p:{a}:x', limit: 9, windowMs: 60_000, shadow: false }
  const send = () => [...local.merges()][0]
  const countOf = ({ merge }: NonNullable<ReturnType<typeof send>>) =>
    merge.calls.reduce((sum, { calls }) => sum + calls, 0)
  for (let i = 0; i < 3; i++) local.charge([quota], 1)
  const first = send()!
  expect(send()).toBeUndefined()
  local.charge([quota], 1)
  first.onEnd()
  const again = send()!
  expect(again.merge).toBe(first.merge)
  expect(countOf(again)).toBe(3)
  const allowance = { ...local.peek([quota], 1)[0]!, used: 3 }
  const rest = again.onEnd({ admitted: true, allowances: [allowance], proof: undefined, mode: 'store' })!
  expect(countOf(rest)).toBe(1)
  expect(rest.merge.number).toBeGreaterThan(first.merge.number)
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 5 }])
})

test('local counters reset when the first call leaves, while some remain, and at once when all do', () => {
  const clock = { ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 }
  const local = createLocalCounters(
    clock,
    { spreadMs: () => 0, dateAt: () => 0 },
    () => true,
    () => true,
  )
  const quota = { name: 'x', key: 'p:{a}:x', limit: 10, windowMs: 60_000, shadow: false }
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 10, resetAfterMs: 0 }])
  const [allowance] = local.charge([quota], 1).allowances
  expect(allowance).toMatchObject({ remaining: 9, retryAfterMs: 0 })
  expect(allowance!.resetAfterMs).toBeGreaterThanOrEqual(60_000)
})
