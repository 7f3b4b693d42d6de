import fc from 'fast-check'
import { parseList } from 'structured-headers'
import { describe, expect, test } from 'vitest'
import type { Decision } from '../../src/limit/decision.ts'
import { decisionHeaders, draftHeaders } from '../../src/gateway/rate-limit-fields.ts'
import type { Allowance } from '../../src/limit/store.ts'
import { HIDDEN_FIELDS, isRateLimitField, isSetByGateway } from '../../src/downstream/own-fields.ts'
import { admitted, allowance, refused, requests, shadow } from '../helpers/decisions.ts'
import { fieldsOf } from '../helpers/fields.ts'

const sync = allowance()
const ISO = '2026-11-21T10:15:30.123Z'

describe('the headers of a decision', () => {
  test.each<[string, Decision, string[]]>([
    [
      'are those of the first limit on an admitted call',
      admitted(requests, allowance({ admitted: true })),
      ['X-RateLimit-Limit', '1000', 'X-RateLimit-Remaining', '998', 'X-RateLimit-Reset', ISO],
    ],
    [
      'are never those of a shadow limit',
      admitted(shadow, requests),
      ['X-RateLimit-Limit', '1000', 'X-RateLimit-Remaining', '998', 'X-RateLimit-Reset', ISO],
    ],
    [
      'are those of the limit that refused on a 429, with the wait in whole seconds, rounded up',
      refused(requests, sync),
      ['X-RateLimit-Limit', '1', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '5'],
    ],
    [
      'are those of the longest wait if several limits refused',
      refused(
        allowance({ name: 'a', limit: 3, retryAfterMs: 9000 }),
        sync,
        allowance({ name: 'b', retryAfterMs: 8999 }),
      ),
      ['X-RateLimit-Limit', '3', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '9'],
    ],
    [
      'are those of the first limit if several have the same wait',
      refused(sync, allowance({ name: 'b', limit: 3 })),
      ['X-RateLimit-Limit', '1', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '5'],
    ],
    [
      'ask for at least a second',
      refused(allowance({ retryAfterMs: 0 })),
      ['X-RateLimit-Limit', '1', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '1'],
    ],
    [
      'are the same for a limit of 0',
      refused(
        allowance({ name: 'a', limit: 3, retryAfterMs: 5000 }),
        allowance({ limit: 0, retryAfterMs: 9000 }),
      ),
      ['X-RateLimit-Limit', '0', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '9'],
    ],
    [
      'keep whole seconds',
      refused(allowance({ retryAfterMs: 5000 })),
      ['X-RateLimit-Limit', '1', 'X-RateLimit-Remaining', '0', 'X-RateLimit-Reset', ISO, 'Retry-After', '5'],
    ],
    [
      'are empty if nothing was counted',
      { admitted: true, allowances: [], mode: 'allow', cached: false },
      [],
    ],
    [
      'keep the number of the limit while this gateway admits only its part of it',
      refused(allowance({ limit: 200, part: 4, used: 4 })),
      [
        'X-RateLimit-Limit',
        '200',
        'X-RateLimit-Remaining',
        '0',
        'X-RateLimit-Reset',
        ISO,
        'Retry-After',
        '5',
      ],
    ],
    ['are empty if only shadow limits were counted', admitted(shadow), []],
  ])('%s', (_, decision, headers) => {
    expect(fieldsOf(decisionHeaders(decision))).toEqual(headers)
  })
})

test('Reset is an instant in ISO 8601 with milliseconds, in UTC, also after any other instant', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 4e12 })), (instants) => {
      for (const resetAt of instants.flatMap((ms) => [ms, ms + 1, ms + 3_599_999])) {
        expect(fieldsOf(decisionHeaders(admitted({ ...requests, resetAt })))[5]).toBe(
          new Date(resetAt).toISOString(),
        )
      }
    }),
  )
})

describe('the headers of the draft', () => {
  const KEY = { key: 'a', access: undefined }
  const QUOTA = { ...KEY, limit: 1, windowMs: 5000, shadow: false }
  const headersOf = (...allowances: Allowance[]) =>
    fieldsOf(
      draftHeaders(
        admitted(...allowances),
        allowances.map((one) => ({ ...one, ...KEY })),
      ),
    )

  test('the draft’s headers list every live limit, in whole seconds, rounded up', () => {
    const first = { ...requests, remaining: 999, resetAfterMs: 12_001 }
    const short = allowance({ windowMs: 500, resetAfterMs: 0.2 })
    expect(headersOf(first, short, shadow)).toEqual([
      'RateLimit-Policy',
      '"requests";q=1000;w=60, "sync";q=1;w=1',
      'RateLimit',
      '"requests";r=999;t=13, "sync";r=0;t=1',
    ])
  })

  test('the draft’s policy of a calendar period has no window: periods differ in length', () => {
    const calendar = { periodAt: () => ({ startMs: 0, endMs: 1 }) }
    expect(fieldsOf(draftHeaders(admitted(requests), [{ ...requests, ...KEY, calendar }]))[1]).toBe(
      '"requests";q=1000',
    )
  })

  test('the draft’s headers stay structured fields for limits beyond the greatest integer of a structured field', () => {
    const [, policy] = headersOf({ ...requests, limit: Number.MAX_SAFE_INTEGER })
    expect(parseList(policy!)[0]![1].get('q')).toBe(999_999_999_999_999)
  })

  test('the draft’s headers list the policy of a limit without an allowance', () => {
    const over = allowance({ name: 'requests', limit: 500, windowMs: 60_000, resetAfterMs: 12_001 })
    const quotas = [
      { ...QUOTA, name: 'sync' },
      { ...QUOTA, name: 'requests' },
      { ...QUOTA, name: 'trial', shadow: true },
    ]
    expect(fieldsOf(draftHeaders(refused(over), quotas))).toEqual([
      'RateLimit-Policy',
      '"sync";q=1;w=5, "requests";q=500;w=60',
      'RateLimit',
      '"requests";r=0;t=13',
    ])
  })

  test('the draft’s headers are empty if nothing was counted', () => {
    expect(headersOf()).toEqual([])
  })
})

test('every field of a refusal replaces that of the upstream, or is the gateway’s own, and is exposed', () => {
  const written = fieldsOf(
    decisionHeaders(refused({ ...requests, admitted: false })) +
      draftHeaders(refused({ ...requests, admitted: false }), [{ ...requests, key: 'a', access: undefined }]),
  )
  const names = written.filter((_, i) => i % 2 === 0)
  expect(names).toContain('Retry-After')
  expect(names).toContain('RateLimit-Policy')
  for (const name of names) {
    expect(HIDDEN_FIELDS).toContain(name)
    expect(isSetByGateway(name.toLowerCase()), name).toBe(true)
    expect(isRateLimitField(name.toLowerCase()), name).toBe(name !== 'Retry-After')
  }
})
