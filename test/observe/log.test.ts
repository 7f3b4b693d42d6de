import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { eventOf, throttle } from '../../src/observe/log.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

it('passes each key once in the interval, and no more keys than it remembers', () => {
  const passed: string[] = []
  const warn = throttle((key: string) => void passed.push(key), 1000, String, 2)
  for (const key of ['a', 'a', 'b', 'c', 'a']) warn(key)
  expect(passed).toEqual(['a', 'b'])
  vi.advanceTimersByTime(1000)
  for (const key of ['c', 'a', 'b']) warn(key)
  expect(passed).toEqual(['a', 'b', 'c', 'a'])
})

it.for([
  [{ msg: 'gateway stopped' }, 'gateway stopped'],
  [
    { msg: 'limit overrides changed', overrides: 1, added: ['acme requests=6, permanent'], gone: [] },
    'limit overrides changed (overrides 1, added acme requests=6, permanent)',
  ],
  [
    {
      msg: 'configuration reloaded',
      hash: '0123456789ab'.padEnd(64, 'f'),
      loadMs: 12.345,
      changes: ['x', 'y'],
    },
    'configuration reloaded (hash 0123456789ab, changes x and 1 more)',
  ],
  [
    { msg: 'uncaught exception; exiting', cause: 'Error: no\n    at a.js:1' },
    'uncaught exception; exiting (cause Error: no)',
  ],
  [{ msg: 'gateway started', adminAddress: 'http://a' }, 'gateway started (admin address http://a)'],
] as const)('shows %j as one sentence', ([fields, text]) => {
  const line = JSON.stringify({ level: 'info', time: '2026-11-27T10:00:00.000Z', ...fields })
  expect(eventOf(line)).toEqual({ at: '2026-11-27T10:00:00.000Z', level: 'info', text })
})
