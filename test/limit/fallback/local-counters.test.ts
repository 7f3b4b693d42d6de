import { expect, test } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import { allowanceOf, type Charge } from '../../../src/limit/store.ts'
import { createCalendar } from '../../../src/policy/calendar.ts'
import { type Clock, SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

const create = (clock: Clock, dateAt = () => 0) =>
  createLocalCounters(
    clock,
    { spreadMs: () => 0, dateAt },
    { isTracked: () => true, isUp: () => true, gateways: () => 1 },
  )
const QUOTA = { name: 'x', key: 'p:{a}:x', limit: 9, windowMs: 60_000, shadow: false }
const answered = (used: number): Charge => ({
  admitted: true,
  allowances: [allowanceOf(QUOTA, true, used, 0, 60_000)],
  proof: undefined,
  mode: 'store',
})
type Local = ReturnType<typeof create>
const next = (local: Local) => [...local.merges()][0]

test('local counters forget a key when its calls have left the window, and hand over nothing of it', () => {
  let nowMs = 1000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = create(clock)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 1, windowMs: 60_000, shadow: false }
  const merges = () => Array.from(local.merges(), ({ merge }) => merge.quota)
  expect(local.charge([quota], 1).admitted).toBe(true)
  expect(local.own.since(quota.key, 0)).toMatchObject({ calls: 1 })
  expect(merges()).toEqual([quota])
  nowMs += 60_000 + 10
  expect(local.own.since(quota.key, nowMs - 60_000)).toBeUndefined()
})

test('local counters send an unsure merge again with its number, and keep what came meanwhile', () => {
  const clock = { ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 }
  const local = create(clock)
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
  const local = create(clock)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 10, windowMs: 60_000, shadow: false }
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 10, resetAfterMs: 0 }])
  const [allowance] = local.charge([quota], 1).allowances
  expect(allowance).toMatchObject({ remaining: 9, retryAfterMs: 0 })
  expect(allowance!.resetAfterMs).toBeGreaterThanOrEqual(60_000)
})

test('local counters hand over nothing of a key that was reset while its merge was under way', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  local.charge([QUOTA], 1)
  const { onEnd } = next(local)!
  local.charge([QUOTA], 1)
  local.reset(() => true)
  expect(onEnd(answered(1))).toBeUndefined()
  expect(next(local)).toBeUndefined()
})

test('local counters end after the merge of a return, also with no other key', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  const calendar = createCalendar({ unit: 'hour', timezone: 'UTC' })
  const { onEnd } = local.giveBack({ ...QUOTA, calendar, countsSuccess: true }, 3_600_000)!
  expect(onEnd(answered(0))).toBeUndefined()
  expect(local.own.isEmpty()).toBe(true)
})

test('local counters keep the calls of two calendar periods apart, however large the limit is', () => {
  let nowMs = 3_599_000
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const hourly = {
    ...QUOTA,
    limit: 2000,
    windowMs: 3_600_000,
    calendar: createCalendar({ unit: 'hour', timezone: 'UTC' }),
  }
  for (let i = 0; i < 1500; i++) local.charge([hourly], 1)
  nowMs = 3_600_001
  expect(local.charge([hourly], 1).allowances[0]).toMatchObject({ remaining: 1999 })
})

test('local counters merge at most a thousand instants at once, and every access with its own key', () => {
  let nowMs = 0
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const ofToken = (i: number) => ({
    ...{ ...QUOTA, limit: 5000, windowMs: 3_600_000 },
    access: { key: `p:{a}:~access:x:${i}`, windowMs: 3_600_000, isOfToken: true },
  })
  for (; nowMs < 1500; nowMs++) local.charge([ofToken(nowMs)], 1)
  const first = next(local)!
  const second = first.onEnd({
    ...answered(1000),
    allowances: [{ ...answered(1000).allowances[0]!, access: { used: 1, resetAfterMs: 1, own: 0 } }],
  })!
  const keys = [first, second].flatMap(({ merge }) => merge.calls.map(({ access }) => access!.key))
  expect(first.merge.calls).toHaveLength(1000)
  expect(keys).toEqual(Array.from({ length: 1500 }, (_, i) => ofToken(i).access.key))
  // A token of the first merge is still free, after another.
  expect(local.charge([ofToken(3)], 1)).toMatchObject({ admitted: true })
  expect(local.own.since('p:{a}:x', -1)).toMatchObject({ calls: 0, merge: { calls: 500 } })
})

test('local counters charge the calls before and after an access is configured', () => {
  let nowMs = 0
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  for (; nowMs < 5; nowMs++) local.charge([QUOTA], 1)
  const access = { key: 'p:{a}:~access:x', windowMs: 1, isOfToken: false }
  for (; nowMs < 50; nowMs += 20) local.charge([{ ...QUOTA, access }], 1)
  expect(next(local)!.merge.calls.map(({ access }) => access?.key)).toEqual([
    ...Array<undefined>(5).fill(undefined),
    ...Array<string>(3).fill(access.key),
  ])
})
