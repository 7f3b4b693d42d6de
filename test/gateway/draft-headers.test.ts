import { parseList } from 'structured-headers'
import { expect, test } from 'vitest'
import type { Decision } from '../../src/limit/decision.ts'
import { draftHeaders } from '../../src/gateway/rate-limit-fields.ts'
import type { Allowance } from '../../src/limit/store.ts'
import { fieldsOf } from '../helpers/fields.ts'

function allowance(name: string, rest: Partial<Allowance> = {}): Allowance {
  return {
    name,
    limit: 1000,
    windowMs: 60_000,
    used: 1,
    remaining: 999,
    resetAt: 0,
    resetAfterMs: 12_001,
    retryAfterMs: 0,
    admitted: true,
    shadow: false,
    own: 0,
    ...rest,
  }
}

function headersOf(...allowances: Allowance[]): string[] {
  const decision: Decision = { admitted: true, allowances, mode: 'store', cached: false }
  const quotas = allowances.map((allowance) => ({ ...allowance, access: undefined, key: allowance.name }))
  return fieldsOf(draftHeaders(decision, quotas))
}

test('the draft’s headers list every live limit, in whole seconds, rounded up', () => {
  const sync = allowance('sync', { limit: 1, windowMs: 500, remaining: 0, resetAfterMs: 0.2 })
  expect(headersOf(allowance('requests'), sync, allowance('trial', { shadow: true }))).toEqual([
    'RateLimit-Policy',
    '"requests";q=1000;w=60, "sync";q=1;w=1',
    'RateLimit',
    '"requests";r=999;t=13, "sync";r=0;t=1',
  ])
})

test('the draft’s headers stay structured fields for limits beyond the greatest integer of a structured field', () => {
  const [, policy] = headersOf(allowance('huge', { limit: Number.MAX_SAFE_INTEGER }))
  expect(parseList(policy!)[0]![1].get('q')).toBe(999_999_999_999_999)
})

test('the draft’s headers list the policy of a limit without an allowance', () => {
  const requests = allowance('requests', { limit: 500, remaining: 0, admitted: false })
  const decision: Decision = {
    admitted: false,
    allowances: [requests],
    refusedBy: requests,
    mode: 'store',
    cached: true,
  }
  const sync = { name: 'sync', key: 'b', limit: 1, windowMs: 5000, shadow: false }
  const trial = { name: 'trial', key: 'c', limit: 9, windowMs: 5000, shadow: true }
  const quotas = [sync, { ...sync, name: 'requests', key: 'a', limit: 1000 }, trial]
  expect(fieldsOf(draftHeaders(decision, quotas))).toEqual([
    'RateLimit-Policy',
    '"sync";q=1;w=5, "requests";q=500;w=60',
    'RateLimit',
    '"requests";r=0;t=13',
  ])
})

test('the draft’s headers are empty if nothing was counted', () => {
  expect(headersOf()).toEqual([])
})
