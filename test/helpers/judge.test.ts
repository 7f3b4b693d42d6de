import { expect, it } from 'vitest'
import { mostInAWindow, wronglyAdmitted, wronglyRefused } from './judge.ts'

const call = (sentAt: number, answeredAt: number, admitted = true) => ({ sentAt, answeredAt, admitted })

it('counts the calls that were certainly admitted within one window', () => {
  expect(mostInAWindow([call(0, 1), call(5, 6), call(99, 99.5), call(100, 101)], 100)).toBe(3)
  expect(mostInAWindow([call(0, 1), call(50, 150)], 100)).toBe(1)
})

it('finds the refusals that were certainly wrong', () => {
  const refused = call(150, 151, false)
  expect(wronglyRefused([call(0, 1), refused], 1, 100)).toEqual([refused])
  expect(wronglyRefused([call(0, 60), refused], 1, 100)).toEqual([])
  expect(wronglyRefused([call(0, 60), refused], 2, 100)).toEqual([refused])
})

it('finds the admitted calls for which there was certainly no room', () => {
  const late = call(98, 99)
  expect(wronglyAdmitted([call(0, 1), late], 1, 100)).toEqual([late])
  expect(wronglyAdmitted([call(0, 1), call(99, 101)], 1, 100)).toEqual([])
  expect(wronglyAdmitted([call(0, 98), late], 1, 100)).toEqual([])
  expect(wronglyAdmitted([call(0, 1), late], 2, 100)).toEqual([])
})
