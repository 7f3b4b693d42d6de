import { expect, test } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import { Leases } from '../../../src/limit/leases.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import { allowanceOf, type Charge, type Merge } from '../../../src/limit/store.ts'
import { createCalendar } from '../../../src/policy/calendar.ts'
import { type Clock, SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

/** A merge, and the function that answers it, with an error by default; resolves with the next merge of the key. */
interface Sent {
  readonly merge: Merge
  readonly onEnd: (charge?: Charge) => Promise<Sent | undefined>
}

/** Creates local counters; `next` starts the hand-over, and returns the next merge that was sent. */
function create(clock: Clock, dateAt: () => number | undefined = () => undefined) {
  const sent: Sent[] = []
  const merge = (merge: Merge) =>
    new Promise<Charge>((resolve, reject) => {
      sent.push({
        merge,
        async onEnd(charge) {
          if (charge === undefined) reject(new Error('no answer'))
          else resolve(charge)
          await new Promise(setImmediate)
          return sent.shift()
        },
      })
    })
  const store = { spreadMs: () => 0, dateAt, merge }
  const options = { isTracked: () => true, isUp: () => true, gateways: () => 1 }
  const local = createLocalCounters(clock, { store, leases: new Leases(), ...options })
  function next(): Sent | undefined {
    void local.handOverAll()
    return sent.shift()
  }
  return { ...local, next }
}
const QUOTA = { name: 'x', key: 'p:{a}:x', limit: 9, windowMs: 60_000, shadow: false }
const answered = (used: number): Charge => ({
  admitted: true,
  allowances: [allowanceOf(QUOTA, true, used, 0, 60_000)],
  proof: undefined,
  mode: 'store',
})

test('local counters forget a key when its calls have left the window, and hand over nothing of it', () => {
  let nowMs = 1000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = create(clock)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 1, windowMs: 60_000, shadow: false }
  expect(local.charge([quota], 1).admitted).toBe(true)
  expect(local.own.since(quota.key, 0)).toMatchObject({ calls: 1 })
  expect(local.next()!.merge.quota).toBe(quota)
  nowMs += 60_000 + 10
  expect(local.own.since(quota.key, nowMs - 60_000)).toBeUndefined()
})

test('local counters send an unsure merge again with its number, and keep what came meanwhile', async () => {
  const clock = { ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 }
  const local = create(clock)
  const quota = { name: 'x', key: 'p:{a}:x', limit: 9, windowMs: 60_000, shadow: false }
  const countOf = ({ merge }: Sent) => merge.calls.reduce((sum, { calls }) => sum + calls, 0)
  for (let i = 0; i < 3; i++) local.charge([quota], 1)
  const first = local.next()!
  expect(local.next()).toBeUndefined()
  local.charge([quota], 1)
  await first.onEnd()
  const again = local.next()!
  expect(again.merge).toBe(first.merge)
  expect(countOf(again)).toBe(3)
  const allowance = { ...local.peek([quota], 1)[0]!, used: 3 }
  const rest = await again.onEnd({ admitted: true, allowances: [allowance], proof: undefined, mode: 'store' })
  expect(countOf(rest!)).toBe(1)
  expect(rest!.merge.number).toBeGreaterThan(first.merge.number)
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

test('local counters hand over nothing of a key that was reset while its merge was under way', async () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  local.charge([QUOTA], 1)
  const { onEnd } = local.next()!
  local.charge([QUOTA], 1)
  local.reset(() => true)
  expect(await onEnd(answered(1))).toBeUndefined()
  expect(local.next()).toBeUndefined()
})

test('local counters settle an own call here, and leave one that was sent to the store', async () => {
  let nowMs = 1000
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const quota = { ...QUOTA, cost: 4 }
  const sent = local.charge([quota], 1)
  const { onEnd } = local.next()!
  nowMs = 1500
  const own = local.charge([quota], 1)
  expect(local.settle(own, { quota, points: -3 })).toBeUndefined()
  expect(local.own.since(quota.key, 0)).toMatchObject({ calls: 1, sent: 4 })
  const settlement = local.settle(sent, { quota, points: -4 })
  expect(settlement).toEqual({ quota, points: -4, chargedUs: 1_000_000, spreadMs: 10 })
  expect(local.own.since(quota.key, 0)).toMatchObject({ calls: 1, sent: 4 })
  expect(local.isMerging(quota.key)).toBe(true)
  await (await onEnd(answered(4)))!.onEnd(answered(5))
  expect(local.isMerging(quota.key)).toBe(false)
})

test('local counters send nothing of an own call that was settled to nothing', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  local.settle(local.charge([QUOTA], 1), { quota: QUOTA, points: -1 })
  expect(local.own.since(QUOTA.key, 0)).toBeUndefined()
  expect(local.next()).toBeUndefined()
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

test('local counters merge at most a thousand instants at once, and every access with its own key', async () => {
  let nowMs = 0
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const ofToken = (i: number) => ({
    ...{ ...QUOTA, limit: 5000, windowMs: 3_600_000 },
    access: { key: `p:{a}:~access:x:${i}`, windowMs: 3_600_000, isOfToken: true },
  })
  for (; nowMs < 1500; nowMs++) local.charge([ofToken(nowMs)], 1)
  const first = local.next()!
  const second = await first.onEnd({
    ...answered(1000),
    allowances: [{ ...answered(1000).allowances[0]!, access: { used: 1, resetAfterMs: 1, own: 0 } }],
  })
  const keys = [first, second!].flatMap(({ merge }) => merge.calls.map(({ access }) => access!.key))
  expect(first.merge.calls).toHaveLength(1000)
  expect(keys).toEqual(Array.from({ length: 1500 }, (_, i) => ofToken(i).access.key))
  // A token of the first merge is still free, after another.
  expect(local.charge([ofToken(3)], 1)).toMatchObject({ admitted: true })
  expect(local.own.since('p:{a}:x', -1)).toMatchObject({ calls: 0, sent: 500 })
})

test('local counters charge the calls before and after an access is configured', () => {
  let nowMs = 0
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  for (; nowMs < 5; nowMs++) local.charge([QUOTA], 1)
  const access = { key: 'p:{a}:~access:x', windowMs: 1, isOfToken: false }
  for (; nowMs < 50; nowMs += 20) local.charge([{ ...QUOTA, access }], 1)
  expect(local.next()!.merge.calls.map(({ access }) => access?.key)).toEqual([
    ...Array<undefined>(5).fill(undefined),
    ...Array<string>(3).fill(access.key),
  ])
})

test('local counters keep the wait of each cost that the store reported', () => {
  let nowMs = 100_000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = create(clock)
  const told = (cost: number, admitted: boolean, used: number, waitMs: number): void => {
    const allowance = allowanceOf({ ...QUOTA, cost }, admitted, used, 0, waitMs)
    local.answered([{ ...QUOTA, cost }], {
      ...{ admitted, allowances: [allowance], proof: undefined, mode: 'store' },
    })
  }
  const passesAt = (cost: number): number => local.peek([{ ...QUOTA, cost }], 1)[0]!.retryAfterMs
  // 3 points leave after 10 s, 4 more after 20 s, and the last 2 after 40 s.
  told(2, true, 9, 10_000)
  told(7, false, 9, 20_000)
  told(1, false, 9, 10_000)
  told(8, false, 9, 40_000)
  expect([1, 7, 8].map(passesAt)).toEqual([10_000, 20_000, 40_000])
  // All points that the store did not report may leave late.
  expect(passesAt(3)).toBe(20_000)
  nowMs += 20_000
  expect(local.charge([{ ...QUOTA, cost: 8 }], 1).admitted).toBe(false)
  expect(local.charge([{ ...QUOTA, cost: 7 }], 1).admitted).toBe(true)
})

test('a call that costs several points waits in an outage until as many have left', () => {
  let nowMs = 100_000
  const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
  const local = create(clock)
  const charge = (cost: number) => local.charge([{ ...QUOTA, cost }], 1)
  // 3 points, 4 more after 10 s, and 2 more after 20 s: of 9.
  for (const cost of [3, 4, 2]) {
    expect(charge(cost).admitted).toBe(true)
    nowMs += 10_000
  }
  const waits = [1, 3, 4, 7, 8].map((cost) => charge(cost).allowances[0]!.retryAfterMs)
  const leaves = [30_000, 30_000, 40_000, 40_000, 50_000]
  for (const [i, waitMs] of waits.entries()) {
    // Calls of this gateway may be counted a little late.
    expect(waitMs).toBeGreaterThanOrEqual(leaves[i]!)
    expect(waitMs).toBeLessThan(leaves[i]! + 1000)
  }
})

test('local counters forget the waits of all costs when the store admits a call', () => {
  let nowMs = 100_000
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const told = (cost: number, admitted: boolean, used: number, waitMs: number): void => {
    const allowances = [allowanceOf({ ...QUOTA, cost }, admitted, used, 0, waitMs)]
    local.answered([{ ...QUOTA, cost }], { admitted, allowances, proof: undefined, mode: 'store' })
  }
  told(7, false, 7, 20_000)
  told(2, true, 9, 30_000)
  nowMs += 20_000
  expect(local.charge([{ ...QUOTA, cost: 2 }], 1).admitted).toBe(false)
})

test('local counters hand over the points of a call that began an access', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  const access = { key: 'p:{a}:~access:x', windowMs: 1000, isOfToken: false }
  local.charge([{ ...QUOTA, access, cost: 4 }], 1)
  expect(local.next()!.merge.calls).toMatchObject([{ calls: 4 }])
})

test('local counters keep the waits of a share and of its counter that the store reported, in any order', () => {
  for (const isShareLast of [true, false]) {
    let nowMs = 100_000
    const clock = { ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs }
    const local = create(clock)
    const share = { ...QUOTA, name: 'share', limit: 3, counts: QUOTA.name }
    const tell = (quota: Quota, waitMs: number): void => {
      const allowance = allowanceOf(quota, false, 9, 0, waitMs)
      const charge = { admitted: false, allowances: [allowance], proof: undefined, mode: 'store' as const }
      local.answered([quota], charge)
    }
    if (isShareLast) tell(QUOTA, 10_000)
    tell(share, 40_000)
    if (!isShareLast) tell(QUOTA, 10_000)
    const admits = (quota: Quota): boolean => local.peek([quota], 1)[0]!.admitted
    nowMs += 10_000
    expect([admits(QUOTA), admits(share)]).toEqual([true, false])
    nowMs += 30_000
    expect(admits(share)).toBe(true)
  }
})

test('local counters let a call that takes more than the limit wait for a window', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 1000, date: () => 1000 })
  const [allowance] = local.charge([{ ...QUOTA, cost: 10 }], 1).allowances
  expect(allowance).toMatchObject({ admitted: false, remaining: 9, retryAfterMs: 60_000 })
})

test('local counters forget the wait of a cost that Redis admits as soon as it is over', () => {
  const local = create({ ...SYSTEM_CLOCK, now: () => 51_500, date: () => 51_500 })
  const quota = { ...QUOTA, cost: 3, limit: 3 }
  const answer = (admitted: boolean, localMs: number, resetAfterMs: number) => {
    const allowances = [allowanceOf(quota, admitted, 3, 0, resetAfterMs)]
    local.answered([quota], { ...answered(3), admitted, allowances, localMs })
  }
  answer(false, 1000, 50_000)
  answer(true, 50_999.9, 60_000)
  expect(local.charge([quota], 1).admitted).toBe(false)
})

test('local counters count what a call used that the store has charged, also before the store knows it', () => {
  let nowMs = 1000
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const quota = { ...QUOTA, cost: 4 }
  const allowances = [allowanceOf(quota, true, 8, 0, 60_000)]
  const charged = {
    admitted: true,
    allowances,
    proof: undefined,
    mode: 'store',
    chargedUs: 1_000_000,
  } as const
  local.answered([quota], { ...charged, localMs: nowMs })
  local.settle(charged, { quota, points: -4 })
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 5 }])
  local.settle(charged, { quota, points: 3 })
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 2 }])
  nowMs += 60_001
  expect(local.peek([quota], 1)).toMatchObject([{ remaining: 9 }])
})

test('local counters know nothing of when calls leave that the store may have got by a merge meanwhile', async () => {
  let nowMs = 1000
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const quota = { ...QUOTA, limit: 10, windowMs: 5000 }
  const dear = { ...quota, cost: 7 }
  const answer = (of: Quota, admitted: boolean, used: number, waitMs: number): Charge => ({
    admitted,
    allowances: [allowanceOf(of, admitted, used, 0, waitMs)],
    proof: undefined,
    mode: 'store',
  })
  local.answered([quota], answer(quota, true, 10, 5000))
  // When the dear call can pass, three points are left.
  local.answered([dear], answer(dear, false, 10, 5000))
  nowMs = 4000
  local.charge([{ ...quota, limit: 20 }], 1)
  await local.next()!.onEnd()
  nowMs = 6100
  const dearer = { ...quota, cost: 10 }
  local.answered([dearer], answer(dearer, false, 8, 2900))
  nowMs = 6200
  expect(local.peek([quota], 1)).toMatchObject([{ used: 9 }])
})
