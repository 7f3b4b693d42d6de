import { expect, test } from 'vitest'
import { add, CallLog, frameAt, settle, usedIn } from '../../../src/limit/memory/call-log.ts'

/** Returns the calls of a log by their instants, oldest first. */
const callsOf = (log: CallLog) =>
  [1000, 2000, 3000, 4000]
    .map((atUs) => [atUs, usedIn(log, { horizonUs: atUs - 1 }) - usedIn(log, { horizonUs: atUs })] as const)
    .filter(([, calls]) => calls > 0)

/** Returns a log of calls with these instants and costs. */
function logOf(...calls: readonly (readonly [atUs: number, cost: number])[]): CallLog {
  const log = new CallLog()
  for (const [atUs, cost] of calls) add(log, frameAt(10, { windowMs: 1000 }, atUs, 0), cost)
  return log
}

test('a log keeps no slot of a call that is settled to nothing', () => {
  const log = logOf([1000, 1], [2000, 2], [3000, 1])
  settle(log, -2, 2000, 0)
  expect(callsOf(log)).toEqual([
    [1000, 1],
    [3000, 1],
  ])
  settle(log, -1, 3000, 0)
  settle(log, -1, 1000, 0)
  expect(callsOf(log)).toEqual([])
  expect(log.slots).toEqual([])
})

test('a log takes from a call no more points than it has, and adds to it as many as it used', () => {
  const log = logOf([1000, 4], [2000, 1], [3000, 2])
  settle(log, -9, 1000, 0)
  settle(log, 5, 2000, 0)
  expect(callsOf(log)).toEqual([
    [2000, 6],
    [3000, 2],
  ])
  add(log, frameAt(10, { windowMs: 1000 }, 4000, 0), 5)
  expect(callsOf(log)).toEqual([
    [2000, 6],
    [3000, 2],
    [4000, 5],
  ])
})

test('a log settles no call that it does not have, nor one later than calls that share a slot', () => {
  const log = logOf([3000, 4])
  for (const atUs of [2899, 3001]) settle(log, -1, atUs, 100)
  expect(callsOf(log)).toEqual([[3000, 4]])
  settle(log, -1, 2900, 100)
  expect(callsOf(log)).toEqual([[3000, 3]])
})
