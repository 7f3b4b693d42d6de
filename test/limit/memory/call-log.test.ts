import { expect, test } from 'vitest'
import { add, callsOf, CallLog, frameAt, takeBack } from '../../../src/limit/memory/call-log.ts'

test('a log keeps no slot of a call that was taken back', () => {
  const log = new CallLog()
  const frame = (atUs: number) => frameAt(10, { windowMs: 1000 }, atUs, 0)
  for (const atUs of [1000, 2000, 2000]) add(log, frame(atUs), atUs)
  takeBack(log, frame(3000))
  expect(callsOf(log)).toEqual([
    [1000, 1],
    [2000, 1],
  ])
  takeBack(log, frame(3000))
  expect(callsOf(log)).toEqual([[1000, 1]])
  takeBack(log, frame(3000))
  takeBack(log, frame(3000))
  expect(callsOf(log)).toEqual([])
})
