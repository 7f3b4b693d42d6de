import { expect, test, vi } from 'vitest'
import { memoizeTogether } from '../../src/runtime/memoize.ts'

const upper = () => vi.fn((text: string) => text.toUpperCase())

test('functions that are memoised together have a maximum of all results, and are dropped together', () => {
  const together = memoizeTogether(3, 10)
  const computes = [upper(), upper()] as const
  const [a, b] = [together(computes[0]), together(computes[1])]
  expect([a('x'), a('y'), b('x'), a('x'), b('x')]).toEqual(['X', 'Y', 'X', 'X', 'X'])
  expect(computes.map(({ mock }) => mock.calls.length)).toEqual([2, 1])
  expect([b('z'), a('x'), b('x'), b('z')]).toEqual(['Z', 'X', 'X', 'Z'])
  expect(computes.map(({ mock }) => mock.calls.length)).toEqual([3, 3])
})

test('longer texts are not kept', () => {
  const compute = upper()
  const memoized = memoizeTogether(3, 2)(compute)
  expect([memoized('abc'), memoized('abc'), memoized('ab'), memoized('ab')]).toEqual([
    'ABC',
    'ABC',
    'AB',
    'AB',
  ])
  expect(compute.mock.calls).toEqual([['abc'], ['abc'], ['ab']])
})
