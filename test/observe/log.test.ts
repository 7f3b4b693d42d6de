import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { throttleByKey } from '../../src/observe/log.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

it('passes each key once in the interval, and no more keys than it remembers', () => {
  const passed: string[] = []
  const warn = throttleByKey((key) => void passed.push(key), 1000, 2)
  for (const key of ['a', 'a', 'b', 'c', 'a']) warn(key)
  expect(passed).toEqual(['a', 'b'])
  vi.advanceTimersByTime(1000)
  for (const key of ['c', 'a', 'b']) warn(key)
  expect(passed).toEqual(['a', 'b', 'c', 'a'])
})
