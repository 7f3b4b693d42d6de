import { expect, test } from 'vitest'
import { add, callsOf, CallLog, frameAt, takeBack } from '../../../src/limit/memory/call-log.ts'

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
