import { expect, test } from 'vitest'
import { add, CallLog, frameAt, takeBack, usedIn } from '../../../src/limit/memory/call-log.ts'

/** Returns the calls of a log by their instants, oldest first. */
const callsOf = (log: CallLog) =>
  [1000, 2000, 3000, 4000]
    .map((atUs) => [atUs, usedIn(log, { horizonUs: atUs - 1 }) - usedIn(log, { horizonUs: atUs })] as const)
    .filter(([, calls]) => calls > 0)

test('a log keeps no slot of a call that was taken back', () => {
  const log = new CallLog()
  const frame = (atUs: number) => frameAt(10, { windowMs: 1000 }, atUs, 0)
  for (const atUs of [1000, 2000, 2000]) add(log, frame(atUs))
  takeBack(log, 1)
  expect(callsOf(log)).toEqual([
    [1000, 1],
    [2000, 1],
  ])
  takeBack(log, 1)
  expect(callsOf(log)).toEqual([[1000, 1]])
  takeBack(log, 1)
  expect(callsOf(log)).toEqual([])
  expect(log.slots).toEqual([])
})

test('a log takes back calls of several instants at once', () => {
  const log = new CallLog()
  for (const [atUs, cost] of [
    [1000, 4],
    [2000, 1],
    [3000, 2],
  ] as const)
    add(log, frameAt(10, { windowMs: 1000 }, atUs, 0), cost)
  takeBack(log, 4)
  expect(callsOf(log)).toEqual([[1000, 3]])
  add(log, frameAt(10, { windowMs: 1000 }, 4000, 0), 5)
  expect(callsOf(log)).toEqual([
    [1000, 3],
    [4000, 5],
  ])
})
