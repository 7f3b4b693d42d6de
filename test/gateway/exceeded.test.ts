import { describe, expect, test } from 'vitest'
import { exceeded } from '../../src/gateway/exceeded.ts'
import type { Allowance } from '../../src/limit/store.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { allowance, refused, requests, shadow } from '../helpers/decisions.ts'

describe('the message of a refusal', () => {
  test.each<[Partial<Allowance>, string]>([
    [{}, 'The limit "sync" allows 1 call in 5 seconds. Retry in 5 seconds.'],
    [
      { limit: 1000, windowMs: 60_000, retryAfterMs: 1 },
      'The limit "sync" allows 1000 calls in 1 minute. Retry in 1 second.',
    ],
    [
      { limit: 2, windowMs: 500, retryAfterMs: 400 },
      'The limit "sync" allows 2 calls in 500 milliseconds. Retry in 1 second.',
    ],
    [{ limit: 0, windowMs: 90_000, retryAfterMs: 90_000 }, 'The limit "sync" allows this client no calls.'],
    [{ limit: 5, windowMs: 7_200_000 }, 'The limit "sync" allows 5 calls in 2 hours. Retry in 5 seconds.'],
    [
      { limit: 5, windowMs: 31 * 86_400_000 },
      'The limit "sync" allows 5 calls in 31 days. Retry in 5 seconds.',
    ],
    [{ limit: 5, windowMs: 1000 }, 'The limit "sync" allows 5 calls in 1 second. Retry in 5 seconds.'],
    [
      { limit: 200, part: 4, windowMs: 60_000 },
      'The limit "sync" allows 200 calls in 1 minute. While the shared counters do not answer, this gateway admits 4 of the 200. Retry in 5 seconds.',
    ],
    [
      { limit: 200, part: 200, windowMs: 60_000 },
      'The limit "sync" allows 200 calls in 1 minute. Retry in 5 seconds.',
    ],
  ])('%j', (rest, detail) => {
    expect(exceeded(refused(allowance(rest))).message).toBe(detail)
  })

  test('names every limit that refused, except shadow limits', () => {
    const both = refused(
      allowance({ name: 'a' }),
      requests,
      allowance({ name: 'b', retryAfterMs: 9000 }),
      shadow,
    )
    expect(exceeded(both)).toMatchObject({ violatedPolicies: ['a', 'b'], retryAfterSecs: 9 })
    expect(both.refusedBy!.name).toBe('b')
  })
})

describe('the refusals of a limit', () => {
  const limit: Limit = { name: 'sync', per: ['client'], limit: 1, windowMs: 5000, shadow: false, changes: [] }
  const refuse = (rest: Partial<Allowance>, limits = [limit]) => exceeded(refused(allowance(rest)), limits)

  test('are one for the calls of a second', () => {
    expect(refuse({ retryAfterMs: 4999 })).toBe(refuse({ retryAfterMs: 4001 }))
  })

  test.each<[string, Partial<Allowance>]>([
    ['wait', { retryAfterMs: 3000 }],
    ['number', { limit: 2 }],
    ['window', { windowMs: 60_000 }],
    ['part in an outage', { limit: 5, part: 4 }],
  ])('differ by their %s', (_, rest) => {
    const other = { limit: rest.part === undefined ? 1 : 5 }
    expect(refuse({ ...other, ...rest }).message).not.toBe(refuse(other).message)
  })

  test('differ by the limits that refused', () => {
    const both = refused(allowance({ retryAfterMs: 4999 }), allowance({ name: 'other', retryAfterMs: 1 }))
    expect(refuse({ retryAfterMs: 4999 })).toMatchObject({ violatedPolicies: ['sync'] })
    expect(exceeded(both, [limit])).toMatchObject({ violatedPolicies: ['sync', 'other'] })
  })

  test('differ by the limit, also if a reload keeps its name', () => {
    const reply = { status: 403, headers: {} }
    expect(refuse({}, [{ ...limit, refusal: reply }]).status).toBe(403)
    expect(refuse({}).status).toBe(429)
  })

  test('are made again after a thousand others', () => {
    const first = refuse({ retryAfterMs: 1000 })
    for (let secs = 2; secs <= 1001; secs++) refuse({ retryAfterMs: 1000 * secs })
    const again = refuse({ retryAfterMs: 1000 })
    expect(again).toEqual(first)
    expect(again).not.toBe(first)
  })
})
