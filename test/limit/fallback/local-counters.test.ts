import { expect, test } from 'vitest'
import { createLocalCounters } from '../../../src/limit/fallback/local-counters.ts'
import { Leases } from '../../../src/limit/leases.ts'
import { allowanceOf, type Charge, type Merge } from '../../../src/limit/store.ts'
import { type Clock, SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'

const QUOTA = { name: 'x', key: 'p:{a}:x', limit: 5000, windowMs: 3_600_000, shadow: false }

/** Returns the answer of the store to a call of a token. */
const answered = (used: number): Charge => ({
  admitted: true,
  allowances: [
    { ...allowanceOf(QUOTA, true, used, 0, 60_000), access: { used: 1, resetAfterMs: 1, own: 0 } },
  ],
  proof: undefined,
  mode: 'store',
})

/** Creates local counters, and records the merges that they send; the first one is answered by `answer`. */
function create(clock: Clock) {
  const merges: Merge[] = []
  let answer = (_charge: Charge): void => {}
  const merge = (merge: Merge) => {
    merges.push(merge)
    return new Promise<Charge>((resolve) => {
      if (merges.length === 1) answer = resolve
    })
  }
  const store = { spreadMs: () => 0, dateAt: () => undefined, merge }
  const options = { isTracked: () => true, isUp: () => true, gateways: () => 1 }
  const local = createLocalCounters(clock, { store, leases: new Leases(), ...options })
  return { ...local, merges, answer: (charge: Charge) => answer(charge) }
}

test('local counters merge at most a thousand instants at once, the rest right after, and every access with its own key', async () => {
  let nowMs = 0
  const local = create({ ...SYSTEM_CLOCK, now: () => nowMs, date: () => nowMs })
  const ofToken = (i: number) => ({
    ...QUOTA,
    access: { key: `p:{a}:~access:x:${i}`, windowMs: 3_600_000, isOfToken: true },
  })
  for (; nowMs < 1500; nowMs++) local.charge([ofToken(nowMs)], 1)
  void local.handOverAll()
  expect(local.merges.map(({ calls }) => calls.length)).toEqual([1000])
  local.answer(answered(1000))
  await new Promise(setImmediate)
  expect(local.merges.map(({ calls }) => calls.length)).toEqual([1000, 500])
  const keys = local.merges.flatMap(({ calls }) => calls.map(({ access }) => access!.key))
  expect(keys).toEqual(Array.from({ length: 1500 }, (_, i) => ofToken(i).access.key))
  // A token of the first merge is still free, after another.
  expect(local.charge([ofToken(3)], 1)).toMatchObject({ admitted: true })
  expect(local.own.since(QUOTA.key, -1)).toMatchObject({ calls: 0, sent: 500 })
})
