import { hash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { ClientLimits, Limit } from '../../src/policy/limit.ts'
import type { LimitOptions } from '../../src/policy/apply.ts'
import { parseCaller } from '../../src/policy/counted-caller.ts'
import { type Override, overrideKey, overrideOf } from '../../src/policy/overrides.ts'
import type { Condition } from '../../src/policy/conditions.ts'
import type { Caller, Facts } from '../../src/policy/facts.ts'
import { Refusal } from '../../src/errors.ts'
import { compileLimits, quotasOf } from './quotas.ts'

interface Sent {
  readonly method?: string
  readonly headers?: readonly (readonly [string, string])[]
  readonly authorization?: string
  readonly claims?: Caller['claims']
}

const factsOf = ({ method = 'GET', headers = [], authorization = 'Bearer t0ken' }: Sent): Facts => ({
  method,
  params: {},
  field: (wanted) => {
    const values = headers.flatMap(([name, value]) => (name.toLowerCase() === wanted ? value : []))
    return values.length === 0 ? undefined : values
  },
  head: { authorization: [authorization] },
  route: { match: 'GET /accounts/:account' },
})

const limitOf = (rest: Partial<Limit>): Limit => ({
  ...{ name: 'l', per: ['client'], limit: 10, windowMs: 60_000, shadow: false, changes: [] },
  ...rest,
})

function apply(limit: Partial<Limit>, sent: Sent = {}, options: Partial<LimitOptions> = {}) {
  const caller = { client: 'acme', claims: sent.claims }
  return quotasOf([limitOf(limit)], caller, { ...options, facts: factsOf(sent) })[0]
}

const keyOf = (per: readonly string[], sent: Sent = {}, parameters = {}) =>
  apply({ per }, sent, { parameters })?.key

describe('a key', () => {
  it('a key has the route’s pattern, the hash of the token, a claim or a header field as a part', () => {
    expect(keyOf(['client', 'route'])).toBe('p:{acme}:l:GET%20/accounts/%3Aaccount')
    const token = hash('sha256', 't0ken', 'base64url')
    expect(keyOf(['token'])).toBe(`p:{${token}}:l`)
    expect(keyOf(['token'], { authorization: 'DPoP   t0ken' })).toBe(`p:{${token}}:l`)
    // ECDSA has two valid signatures for each.
    const tokenKey = (bearer: string) => keyOf(['token'], { authorization: `Bearer ${bearer}` })
    for (const json of ['{"alg":"ES256"}', ' { "alg" : "ES256" }\n']) {
      const header = Buffer.from(json).toString('base64url')
      expect(tokenKey(`${header}.eyJw.one`)).toBe(tokenKey(`${header}.eyJw.two`))
      expect(tokenKey(`${header}.eyJw.one`)).not.toBe(tokenKey(`${header}.eyJx.one`))
    }
    for (const opaque of ['a.b.', 'bm8.b.', 'eyJh.b.c.'])
      expect(tokenKey(`${opaque}one`)).not.toBe(tokenKey(`${opaque}two`))
    expect(keyOf(['client', 'claim:consent'], { claims: { consent: 'Ab:1' } })).toBe('p:{acme}:l:Ab%3A1')
    expect(keyOf(['claim:n'], { claims: { n: 42 } })).toBe('p:{42}:l')
    expect(keyOf(['header:x-org'], { headers: [['X-Org', 'ACME-1']] })).toBe('p:{acme-1}:l')
  })

  it('a key is one for everybody without parts', () => {
    expect(keyOf([])).toBe('p:{}:l')
  })

  it.each([
    ['absent', {}],
    ['empty', { claims: { c: '' } }],
    ['too long', { claims: { c: 'x'.repeat(256) } }],
    ['a fraction', { claims: { c: 1.5 } }],
    ['beyond the integers that are exact', { claims: { c: 2 ** 53 } }],
    ['true', { claims: { c: true } }],
    ['a list', { claims: { c: ['x'] } }],
  ])('a key is never made from a claim that is %s', (_, sent) => {
    const isAbsent = !('claims' in sent)
    const why = isAbsent ? 'has a limit per "c"' : 'must be a text of at most 255 characters, none a'
    expect(() => keyOf(['claim:c'], sent)).toThrow(why)
    const skipping = { per: ['claim:c'], skipsMissing: true }
    if (!isAbsent) expect(() => apply(skipping, sent)).toThrow(why)
    else expect(apply(skipping, sent)).toBeUndefined()
  })

  it.each([
    ['absent', []],
    [
      'repeated',
      [
        ['X-Org', 'a'],
        ['x-org', 'a'],
      ],
    ],
    ['not plain', [['X-Org', 'a b']]],
  ] as const)('a key is never made from a header field that is %s', (name, headers) => {
    const isAbsent = name === 'absent'
    const why = isAbsent
      ? 'Send the header field x-org; this path'
      : 'Send the header field x-org once; it must be letters, digits and - _ : @ ~ =, 128 characters at most.'
    expect(() => keyOf(['header:x-org'], { headers })).toThrow(why)
    const skipping = { per: ['header:x-org'], skipsMissing: true }
    if (!isAbsent) expect(() => apply(skipping, { headers })).toThrow(why)
    else expect(apply(skipping, { headers })).toBeUndefined()
  })

  it('a key is made from claims and header fields of their kinds only', () => {
    const parameters = { 'claim:c': { kind: 'uuid' }, 'Header:X-Org': { kind: '[a-z]{2}' } }
    const uuid = '123e4567-e89b-12d3-a456-426614174000'
    expect(keyOf(['claim:c'], { claims: { c: uuid } }, parameters)).toBe(`p:{${uuid}}:l`)
    expect(() => keyOf(['claim:c'], { claims: { c: 'x' } }, parameters)).toThrow('must be a UUID such as')
    expect(keyOf(['header:x-org'], { headers: [['X-Org', 'ab']] }, parameters)).toBe('p:{ab}:l')
    expect(() => keyOf(['header:x-org'], { headers: [['X-Org', 'abc']] }, parameters)).toThrow(
      'Send the header field x-org once',
    )
  })
})

describe('a request that lacks a part', () => {
  function refusalOf(rest: Partial<Limit>, sent: Sent = {}) {
    const caller = { ip: '192.0.2.7', client: 'acme', claims: sent.claims }
    const quotas = compileLimits([limitOf(rest)], { prefix: 'p' })(caller, factsOf(sent), 0)
    return quotas instanceof Refusal ? quotas : undefined
  }

  it('a request that lacks a part is refused with 403 for a user or a claim, 400 for a header field', () => {
    expect(refusalOf({ per: ['user'] })).toMatchObject({ status: 403 })
    expect(refusalOf({ per: ['client', 'claim:c'] })).toMatchObject({ status: 403 })
    expect(refusalOf({ per: ['client', 'header:x-org'] })).toMatchObject({ status: 400 })
    expect(refusalOf({ per: ['claim:c'] }, { claims: { c: 'x' } })).toBeUndefined()
  })

  it('a request that lacks a part is refused for a malformed part, also with missing: skip', () => {
    const headers = [
      ['X-Org', 'a'],
      ['X-Org', 'a'],
    ] as const
    const skipsMissing = true
    expect(refusalOf({ per: ['header:x-org'], skipsMissing }, { headers })).toMatchObject({ status: 400 })
    expect(refusalOf({ per: ['claim:c'], skipsMissing }, { claims: { c: '' } })).toMatchObject({
      status: 403,
    })
  })

  it('a request that lacks a part is not refused by a limit that is left out', () => {
    expect(refusalOf({ per: ['claim:c'], skipsMissing: true })).toBeUndefined()
    const unless: readonly Condition[] = [{ of: 'method', name: '', is: ['GET'] }]
    expect(refusalOf({ per: ['claim:c'], unless })).toBeUndefined()
    expect(refusalOf({ per: ['claim:c'], unless }, { method: 'POST' })).toMatchObject({ status: 403 })
  })
})

describe('a condition', () => {
  const header = (is: Condition['is']): Condition => ({ of: 'header', name: 'x-psu', is })
  const claim = (is: Condition['is']): Condition => ({ of: 'claim', name: 'c', is })
  const psu = (...values: readonly string[]): Sent => ({ headers: values.map((value) => ['X-PSU', value]) })

  it.each<[string, Condition, Sent, boolean]>([
    ['a field that is present', header('present'), psu(''), true],
    ['a field that is absent', header('present'), {}, false],
    ['an absent field', header('absent'), {}, true],
    ['an IPv4 address', header('ip'), psu('192.0.2.1'), true],
    ['an IPv6 address', header('ip'), psu('2001:db8::1'), true],
    ['an address with a zone', header('ip'), psu('fe80::1%eth0'), false],
    ['an address with a port', header('ip'), psu('192.0.2.1:80'), false],
    ['two addresses in one field', header('ip'), psu('192.0.2.1, 192.0.2.2'), false],
    ['a repeated address', header('ip'), psu('192.0.2.1', '192.0.2.1'), false],
    ['a word', header('ip'), psu('true'), false],
    ['an equal value', header(['a', 'b']), psu('b'), true],
    ['a list in one line, all of whose members are equal', header(['a', 'b']), psu('a , b'), true],
    ['a claim that equals', claim(['gold']), { claims: { c: 'gold' } }, true],
    ['a boolean claim', claim(['true']), { claims: { c: true } }, true],
    ['a list with an equal item', claim(['gold']), { claims: { c: ['x', 'gold'] } }, true],
    ['a list without', claim(['gold']), { claims: { c: ['x'] } }, false],
    ['an empty list', claim('present'), { claims: { c: [] } }, true],
    ['an absent claim', claim('absent'), { claims: {} }, true],
    ['another method', { of: 'method', name: '', is: ['POST'] }, {}, false],
  ])('on %s', (_, condition, sent, holds) => {
    expect(apply({ when: [condition] }, sent) !== undefined).toBe(holds)
    expect(apply({ unless: [condition] }, sent) !== undefined).toBe(!holds)
  })

  it.each([
    ['another line', psu('a', 'b')],
    ['another member in its line', psu('b, a')],
    ['another case', psu('A')],
    ['an empty member', psu('a,')],
    ['an empty line', psu('a', '')],
  ])('a condition on a field with %s cannot be used to leave a limit out', (_, sent) => {
    expect(apply({ when: [header(['a'])] }, sent)).toBeDefined()
    expect(apply({ unless: [header(['a'])] }, sent)).toBeDefined()
  })

  it('a condition on a repeated field leaves a limit out if all lines are equal', () => {
    expect(apply({ unless: [header(['a'])] }, psu('a', 'a'))).toBeUndefined()
    expect(apply({ unless: [header(['a'])] }, psu(''))).toBeDefined()
  })

  it('a condition on a field ignores only blanks and tabs around a member', () => {
    expect(apply({ unless: [header(['a'])] }, psu('a \t,\t a', ' a'))).toBeUndefined()
    for (const value of ['\u00a0a', 'a\u00a0', 'a,\u000ba', 'a\u00a0,a'])
      expect(apply({ unless: [header(['a'])] }, psu(value))).toBeDefined()
  })

  it('a condition is one of several: all of when, any of unless', () => {
    const both = [header('present'), claim('present')]
    expect(apply({ when: both }, psu('a'))).toBeUndefined()
    expect(apply({ when: both }, { ...psu('a'), claims: { c: 'x' } })).toBeDefined()
    expect(apply({ unless: both }, psu('a'))).toBeUndefined()
    expect(apply({ unless: both })).toBeDefined()
  })
})

describe('a value from the token', () => {
  const bad: string[] = []
  const callsOf = (limit: Partial<Limit>, claims?: Caller['claims']) =>
    apply({ limit: 4, ...limit }, { claims }, { onBadClaim: ({ name }) => bad.push(name) })?.limit
  const number = { claim: { name: 'n', max: 100 } }
  const plan = { claim: { name: 'plan', values: { gold: 5000, 7: 70 } } }

  it('a value from the token is a whole number up to max, or one of values, else the default', () => {
    expect([undefined, {}, { n: 0 }, { n: 8 }, { n: 1000 }].map((claims) => callsOf(number, claims))).toEqual(
      [...[4, 4, 0, 8, 100]],
    )
    expect(['gold', 7].map((value) => callsOf(plan, { plan: value }))).toEqual([5000, 70])
    expect(callsOf(plan)).toBe(4)
    expect(bad).toEqual([])
  })

  it.each([-1, 1.5, '8', true, 2 ** 60])(
    'a value from the token is reported if the claim %j is not a whole number',
    (n) => {
      bad.length = 0
      expect(callsOf(number, { n })).toBe(4)
      expect(bad).toEqual(['l'])
    },
  )

  it.each(['silver', 'constructor', 5000])(
    'a value from the token is reported if %j is not one of values',
    (value) => {
      bad.length = 0
      expect(callsOf(plan, { plan: value })).toBe(4)
      expect(bad).toEqual(['l'])
    },
  )

  it('a value from the token is replaced by the client’s own limit and by an override', () => {
    const own: ClientLimits = new Map([['acme', new Map([['l', { limit: 7 }]])]])
    const set: Override = { caller: parseCaller('acme'), name: 'l', limit: 9, setAt: 0 }
    const overrides = new Map([[overrideKey('p', set), set]])
    const caller = { client: 'acme', claims: { n: 8 } }
    const callsUnder = (rules: Partial<LimitOptions>) => quotasOf([limitOf(number)], caller, rules)[0]!.limit
    expect(callsUnder({ clientLimits: own })).toBe(7)
    expect(callsUnder({ clientLimits: own, overrides })).toBe(9)
  })
})

describe('an override', () => {
  const named = (caller: string, calls: number): Override => ({
    ...{ caller: parseCaller(caller), name: 'l', limit: calls, setAt: 0 },
  })
  const mapOf = (...all: Override[]) => new Map(all.map((one) => [overrideKey('p', one), one]))

  it('an override is found by a key, and by the beginning of a key that is not known', () => {
    const limit = { name: 'l', per: ['client', 'connection'] }
    const set = named('acme', 9)
    expect(overrideOf(mapOf(set), limit, 'p:{acme}:l:c1')).toBe(set)
    expect(overrideOf(mapOf(set), limit, 'p:{acme}:l')).toBe(set)
    expect(overrideOf(mapOf(set), limit, 'p:{other}:l:c1')).toBeUndefined()
    const both = named('client:acme user:jo', 3)
    const perUser = { name: 'l', per: ['client', 'user'] }
    expect(overrideOf(mapOf(set, both), perUser, 'p:{acme}:l:jo')).toBe(both)
    expect(overrideOf(mapOf(set, both), perUser, 'p:{acme}:l:mo')).toBe(set)
  })

  it('an override is not replaced by that of another kind of caller with the same value', () => {
    const [client, user] = [named('client:x', 1), named('user:x', 2)]
    for (const all of [mapOf(client, user), mapOf(user, client)]) {
      expect(overrideOf(all, { name: 'l', per: ['user'] }, 'p:{x}:l')).toBe(user)
      expect(overrideOf(all, { name: 'l', per: ['client'] }, 'p:{x}:l')).toBe(client)
      expect(overrideOf(all, { name: 'l', per: ['ip'] }, 'p:{x}:l')).toBeUndefined()
    }
  })
})

describe('a quota', () => {
  it('a quota has the calendar of its limit, what it counts and its outage mode', () => {
    const calendar = { unit: 'month', timezone: 'America/Sao_Paulo' } as const
    const quota = apply({ calendar, countsSuccess: true, onOutage: 'deny' })!
    expect(quota).toMatchObject({ countsSuccess: true, onOutage: 'deny', calendar })
    expect(quota.calendar).toBe(apply({ calendar })!.calendar)
    expect(new Date(quota.calendar!.periodAt(0).endMs).toISOString()).toBe('1970-01-01T03:00:00.000Z')
  })

  it('a quota has an access of its own key, for a duration or for the token', () => {
    const { key, access } = apply({ per: ['client', 'route'], together: 5000, onOutage: 'deny' })!
    expect(access).toMatchObject({ windowMs: 5000, isOfToken: false })
    expect(access!.key).toBe(key.replace('}:l:', '}:~access:l:'))
    const calendar = { unit: 'day', timezone: 'UTC' } as const
    const ofToken = apply({ together: 'token', windowMs: 90_000_000, calendar })!.access!
    expect(ofToken.key).toBe(`p:{acme}:~access:l:${hash('sha256', 't0ken', 'base64url')}`)
    expect(ofToken).toMatchObject({ windowMs: 90_000_000, calendar, isOfToken: true })
    expect(apply({ per: [], together: 5000 })!.access!.key).toBe('p:{}:~access:l')
  })
})
