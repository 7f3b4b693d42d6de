import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { callerKeys, counterKeys, showKey } from '../../src/policy/caller-keys.ts'
import { parseCaller } from '../../src/policy/counted-caller.ts'
import { limitNameOf, partCount } from '../../src/limit/key.ts'
import { hashSlot, hashTag } from '../../src/limit/redis/hash-slot.ts'
import type { ClientLimits, Limit } from '../../src/policy/limit.ts'
import { type Override, overrideKey } from '../../src/policy/overrides.ts'
import { quotasOf } from './quotas.ts'

const ip = '192.0.2.7'

function limit(name: string, per: readonly string[], rest: Partial<Limit> = {}): Limit {
  return { name, per, limit: 10, windowMs: 60_000, shadow: false, changes: [], ...rest }
}

const overridesOf = (override: Override) => new Map([[overrideKey('p', override), override]])

/** Returns the key of one limit for a caller. */
function keyOf(
  per: readonly string[],
  caller: { client?: string; user?: string; ip?: string },
  params = {},
): string {
  return quotasOf([limit('l', per)], caller, { params })[0]!.key
}

describe('the key of a limit', () => {
  test('the key of a limit has the first part as its hash tag, then the limit’s name, then the other parts', () => {
    const caller = { client: 'acme', user: 'u1', ip }
    expect(keyOf(['client'], caller)).toBe('p:{acme}:l')
    expect(keyOf(['client', 'connection'], caller, { connection: 'c-1' })).toBe('p:{acme}:l:c-1')
    expect(keyOf(['user', 'client', 'ip'], caller)).toBe('p:{u1}:l:acme:192.0.2.7')
  })

  test('compares clients and users exactly, and parameters ignoring case', () => {
    expect(keyOf(['client'], { client: 'Acme' })).not.toBe(keyOf(['client'], { client: 'acme' }))
    const connection = (value: string) => keyOf(['connection'], {}, { connection: value })
    for (const same of ['Stra%C3%9Fe', 'STRASSE', 'strasse', 'STRA%E1%BA%9EE', '%C5%BFtrasse']) {
      expect(connection(same)).toBe(connection('strasse'))
    }
    expect(connection('%CE%A3%CE%B1%CF%82')).toBe(connection('%CF%83%CE%B1%CF%83'))
    expect(connection('a:b')).toBe(connection('A%3Ab'))
    for (const other of ['%C3%A8x', 'e%C2%ADx', 'ex%20', 'ex.json', '%EF%BD%85x'])
      expect(connection(other)).not.toBe(connection('ex'))
    expect(connection('012')).not.toBe(connection('12'))
    expect(keyOf(['client'], { client: 'é' })).not.toBe(keyOf(['client'], { client: 'e' }))
    expect(keyOf(['client'], { client: 'e\u00ad' })).not.toBe(keyOf(['client'], { client: 'e' }))
    expect(keyOf(['client'], { client: 'a.json' })).toBe('p:{a.json}:l')
  })

  test('counts IPv6 by its /64 and IPv4-mapped addresses as IPv4', () => {
    const key = (address: string) => keyOf(['ip'], { ip: address })
    expect(key('2001:db8:1:2:3:4:5:6')).toBe(key('2001:0DB8:1:2::ffff'))
    expect(key('2001:db8:1:2::')).toBe('p:{2001-db8-1-2/64}:l')
    expect(key('2001:db8:1:3::')).not.toBe(key('2001:db8:1:2::'))
    expect(key('::ffff:192.0.2.7')).toBe(key('192.0.2.7'))
    expect(key('::ffff:c000:207')).toBe(key('192.0.2.7'))
    expect(key('64:ff9b::192.0.2.7')).toBe(key('192.0.2.7'))
    expect(key('64:ff9b::c000:208')).not.toBe(key('192.0.2.7'))
    expect(key('fe80::1%eth0')).toBe(key('fe80::2'))
    expect(key('::1')).toBe('p:{0-0-0-0/64}:l')
    for (const broken of ['1::2::3', ':::', '12345::', '1:2:3:4:5:6:7:8:9', 'g::1']) {
      expect(key(broken)).toContain('%3A')
    }
  })

  test('encodes different parts differently, without delimiters and braces', () => {
    const text = fc.oneof(
      fc.string({
        unit: fc.constantFrom('a', 'A', ':', '{', '}', '%', '#', '*', '\u0000', '\n', 'é'),
      }),
      fc.string({ unit: 'grapheme' }),
      fc.constantFrom('', '%', '#', '%25', 'a:b', '}:l:', '\ufffd', '\ud800\udc00'),
    )
    fc.assert(
      fc.property(text, text, text, text, (a, b, c, d) => {
        const key = keyOf(['client', 'user'], { client: a, user: b })
        const other = keyOf(['client', 'user'], { client: c, user: d })
        expect(key === other).toBe(a === c && b === d)
        // oxlint-disable-next-line no-control-regex
        expect(key).toMatch(/^p:\{[^{}:\u0000- \u007f-\uffff]+\}:l:[^{}:\u0000- \u007f-\uffff]+$/)
        expect(hashTag(key)).not.toBe('')
      }),
      { numRuns: 2000 },
    )
  })

  test('replaces a part of more than 256 bytes by a hash, which differs from the encoding of every other part', () => {
    const key = (client: string) => keyOf(['client'], { client })
    expect(key('x'.repeat(256))).toBe(`p:{${'x'.repeat(256)}}:l`)
    const long = key('x'.repeat(257))
    expect(long).toMatch(/^p:\{#[0-9a-f]{64}\}:l$/)
    expect(key(long.slice(3, 68))).not.toBe(long)
    expect(key('é'.repeat(128))).not.toContain('#')
    expect(key('é'.repeat(129))).toContain('#')
    expect(key('x'.repeat(5_000_000))).toHaveLength(71)
  })

  test('the key of a limit is refused to callers that lack a part, rather than shared among them', () => {
    expect(() => keyOf(['client'], {})).toThrow('has a limit per client')
    expect(() => keyOf(['connection'], { client: 'a' }, { other: 'x' })).toThrow('per connection')
  })
})

describe('a limit', () => {
  const changed = limit('requests', ['client'], {
    limit: 1000,
    changes: [
      { announcedAt: 0, fromAt: 100, limit: 500 },
      { announcedAt: 0, fromAt: 200, limit: 1200 },
    ],
  })
  const at = (nowMs: number, clientLimits?: ClientLimits) =>
    quotasOf([changed], { client: 'acme' }, { nowMs, clientLimits })[0]!

  test('changes at its dates', () => {
    expect([99, 100, 199, 200, 100_000].map((nowMs) => at(nowMs).limit)).toEqual([1000, 500, 500, 1200, 1200])
  })

  test('a limit is replaced by the client’s own limit until that ends', () => {
    const own: ClientLimits = new Map([
      ['acme', new Map([['requests', { limit: 7, windowMs: 1000, untilAt: 150 }]])],
    ])
    expect(at(149, own)).toMatchObject({ limit: 7, windowMs: 1000, untilAt: 150 })
    expect(at(150, own)).toMatchObject({ limit: 500, windowMs: 60_000, untilAt: undefined })
    const always: ClientLimits = new Map([['acme', new Map([['requests', { limit: 0 }]])]])
    expect(at(1e12, always)).toMatchObject({ limit: 0, windowMs: 60_000 })
    expect(quotasOf([changed], { client: 'other' }, { clientLimits: always })[0]!.limit).toBe(1000)
  })

  test('a limit is replaced by an override until that ends, as is the client’s own limit, except for its window', () => {
    const [client, name, setAt] = ['acme', 'requests', 0]
    const overrides = overridesOf({ caller: parseCaller(client), name, limit: 9, untilAt: 180, setAt })
    const own: ClientLimits = new Map([
      ['acme', new Map([['requests', { limit: 7, windowMs: 1000, untilAt: 150 }]])],
    ])
    const under = (nowMs: number, clientLimits?: ClientLimits, caller = client) =>
      quotasOf([changed], { client: caller }, { nowMs, clientLimits, overrides })[0]!
    expect([0, 100, 179, 180].map((nowMs) => under(nowMs).limit)).toEqual([9, 9, 9, 500])
    const longer: ClientLimits = new Map([
      ['acme', new Map([['requests', { limit: 7, windowMs: 1000, untilAt: 200 }]])],
    ])
    expect([149, 150, 180].map((nowMs) => under(nowMs, own).limit)).toEqual([9, 9, 500])
    expect([179, 180, 199, 200].map((nowMs) => under(nowMs, longer).limit)).toEqual([9, 7, 7, 1200])
    expect(under(149, own)).toMatchObject({ windowMs: 1000, untilAt: 180 })
    expect(under(150, own)).toMatchObject({ windowMs: 60_000, untilAt: 180 })
    expect(under(180)).toMatchObject({ untilAt: undefined })
    expect(under(0, undefined, 'other').limit).toBe(1000)
  })

  test('ignores an override if its keys do not begin with the caller: other callers share them', () => {
    const overrides = overridesOf({ caller: parseCaller('acme'), name: 'shared', limit: 9, setAt: 0 })
    const shared = [limit('shared', ['connection', 'client'])]
    const [quota] = quotasOf(shared, { client: 'acme' }, { params: { connection: 'c' }, overrides })
    expect(quota!.limit).toBe(shared[0]!.limit)
  })
})

describe('the keys of a caller', () => {
  const acme = parseCaller('acme')
  const limits = [
    limit('first', ['client']),
    limit('middle', ['user', 'client', 'connection']),
    limit('none', ['ip']),
  ]

  test('the keys of a caller are found by globs, and distinguished exactly from the other keys that match', () => {
    const { named, glob, matches } = callerKeys(limits, 'p', parseCaller('a*c'))
    expect([named, glob]).toEqual([['p:{a%2Ac}:first'], 'p:*a%2Ac*'])
    const first = callerKeys([limit('sync', ['client', 'connection'])], 'p', acme)
    expect([first.named, first.glob]).toEqual([[], 'p:{acme}:*'])
    expect(callerKeys([limit('first', ['client'])], 'p', acme).glob).toBeUndefined()
    expect(matches('p:{a%2Ac}:first')).toBe(true)
    expect(matches('p:{u}:middle:a%2Ac:x')).toBe(true)
    expect(matches('p:{u}:middle:x:a%2Ac')).toBe(false)
    expect(matches('p:{a%2Ac}:none')).toBe(false)
    expect(matches('p:{a%2Ac}:~proof:x')).toBe(false)
    expect(matches('nonsense')).toBe(false)
  })

  test('the keys of a caller are those of its accesses, too, unless they are only listed', () => {
    const own = [limit('sessions', ['client'], { together: 'token' })]
    const [all, listed] = [callerKeys(own, 'p', acme), counterKeys(own, 'p', acme)]
    expect([all.named, all.glob]).toEqual([['p:{acme}:sessions'], 'p:{acme}:*'])
    expect(all.matches('p:{acme}:~access:sessions:hash')).toBe(true)
    expect(all.matches('p:{other}:~access:sessions:hash')).toBe(false)
    expect([listed.named, listed.glob]).toEqual([['p:{acme}:sessions'], undefined])
    expect(listed.matches('p:{acme}:~access:sessions:hash')).toBe(false)
  })

  test('the keys of a caller of a limit of calls at once are not those of a limit that had its name before', () => {
    const [exports, perRoute] = [
      limit('exports', ['client'], { isConcurrent: true }),
      limit('perRoute', ['client', 'route'], { isConcurrent: true }),
    ]
    expect(quotasOf([exports], { client: 'acme' })[0]!.key).toBe('p:{acme}:~leases:exports')
    const { named, matches } = callerKeys([exports, perRoute], 'p', acme)
    expect(named).toEqual(['p:{acme}:~leases:exports'])
    expect(matches('p:{acme}:~leases:perRoute:GET%20/x')).toBe(true)
    expect(matches('p:{acme}:perRoute:GET%20/x')).toBe(false)
    expect(callerKeys(limits, 'p', acme).matches('p:{acme}:~leases:first')).toBe(false)
    const key = 'p:{acme}:~leases:perRoute:GET%20/x'
    expect([limitNameOf(key), partCount(key), showKey('p', perRoute, key)]).toEqual(['perRoute', 2, key])
    const overrides = overridesOf({ caller: acme, name: 'exports', limit: 9, setAt: 0 })
    expect(quotasOf([exports], { client: 'acme' }, { overrides })[0]).toMatchObject({ limit: 9 })
  })
})

test('hash slots are those of Redis Cluster', () => {
  expect(hashSlot('123456789')).toBe(0x31c3)
  expect(hashSlot('foo')).toBe(12_182)
  expect([hashTag('p:{a}:x'), hashTag('p:{}:x'), hashTag('p{a'), hashTag('x')]).toEqual([
    'a',
    'p:{}:x',
    'p{a',
    'x',
  ])
})
