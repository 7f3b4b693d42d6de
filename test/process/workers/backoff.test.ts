import { expect, it } from 'vitest'
import { createBackoff } from '../../../src/process/workers/backoff.ts'

it('starts anew at once, then ever more slowly, and at once again what had lived for a while', () => {
  const wait = createBackoff()
  expect(Array.from({ length: 12 }, () => wait(500))).toEqual([
    0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
  ])
  expect(wait(10_000)).toBe(0)
  expect(wait(9_999)).toBe(100)
})
