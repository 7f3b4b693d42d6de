import { expect, it } from 'vitest'
import { mostInAWindow, wronglyRefused } from './judge.ts'

const call = (sentAt: number, answeredAt: number, admitted = true) => ({ sentAt, answeredAt, admitted })

it('counts the calls that were certainly admitted in one window', () => {
  expect(mostInAWindow([call(0, 1), call(5, 6), call(99, 99.5), call(100, 101)], 100)).toBe(3)
  expect(mostInAWindow([call(0, 1), call(50, 150)], 100)).toBe(1)
})

it('finds the refusals that nothing can excuse', () => {
  const refused = call(150, 151, false)
  expect(wronglyRefused([call(0, 1), refused], 1, 100)).toEqual([refused])
  expect(wronglyRefused([call(0, 60), refused], 1, 100)).toEqual([])
  expect(wronglyRefused([call(0, 60), refused], 2, 100)).toEqual([refused])
})
