import { describe, expect, it } from 'vitest'
import { differences } from '../../src/config/shown-settings.ts'
import { readSource } from '../../src/config/yaml/source.ts'

const differencesOf = (before: string, after: string) =>
  differences(before, readSource(after, 'sluice.yaml').value, 'sluice.yaml')

describe('the differences of two configurations', () => {
  it.for([
    [
      'a value',
      'limits: { a: { limit: 1000 } }',
      'limits: { a: { limit: 10 } }',
      ['limits.a.limit 1000 → 10'],
    ],
    [
      'a list of plain values',
      'x: { per: [client] }',
      'x: { per: [client, user] }',
      ['x.per [ client ] → [ client, user ]'],
    ],
    ['what is added and removed', 'a: 1', 'b: { c: x }', ['a removed: 1', 'b added: { c: x }']],
    [
      'items of a list, by what names them',
      'routes: [{ match: /a, upstream: x }, { match: "GET /b", upstream: x }]',
      'routes: [{ match: /a, upstream: x }, { match: "GET /b", upstream: y }]',
      ['routes["GET /b"].upstream x → y'],
    ],
    [
      'the order of items',
      'routes: [{ match: /a }, { match: /b }]',
      'routes: [{ match: /b }, { match: /c }, { match: /a }]',
      ['routes["/c"] added: { match: /c }', 'routes are in another order: /b, /c, /a'],
    ],
    [
      'clients of two issuers with one id, by the issuer',
      'clients: [{ id: a, issuer: x }, { id: a, issuer: y }]',
      'clients: [{ id: a, issuer: x }, { id: a, issuer: z }]',
      ['clients["a of y"] removed: { id: a, issuer: y }', 'clients["a of z"] added: { id: a, issuer: z }'],
    ],
    [
      'one client more with the id of another',
      'clients: [{ id: a }, { id: b }]',
      'clients: [{ id: a }, { id: b }, { id: a, issuer: z }]',
      ['clients["a of z"] added: { id: a, issuer: z }'],
    ],
    [
      'announced changes, by their dates',
      'changes: [{ announced: 1, from: "2027", limit: 12 }]',
      'changes: [{ announced: 1, from: "2027", limit: 13 }]',
      ['changes.2027.limit 12 → 13'],
    ],
    ['aliases', 'a: &x { b: 1 }\nc: *x', 'a: { b: 1 }\nc: { b: 1 }', []],
    ['comments and the order of keys', 'a: 1 # one\nb: 2', 'b: 2\na: 1', []],
    ['variables as they are written', 'a: "${A:-1}"', 'a: "${A:-2}"', ['a ${A:-1} → ${A:-2}']],
    [
      'secrets that are not shown',
      'admin: { token: one }',
      'admin: { token: two }',
      ['admin.token *** → ***'],
    ],
    [
      'where secrets come from',
      'admin: { token: "${A}" }',
      'admin: { token: "file:/run/token" }',
      ['admin.token ${A} → file:/run/token'],
    ],
    [
      'a secret in a default',
      'admin: { token: a }',
      'admin: { token: "${A:-b}" }',
      ['admin.token *** → ***'],
    ],
    [
      'URLs without user and query',
      'store: { redis: { url: "redis://u:p@h" } }',
      'store: { redis: { url: "redis://u:q@g" } }',
      ['store.redis.url redis://***@h → redis://***@g'],
    ],
    ['long values, cut', 'a: x', `a: ${'y'.repeat(200)}`, [`a x → ${'y'.repeat(100)}…`]],
    [
      'headers of tracing',
      'tracing: { headers: { k: a } }',
      'tracing: { headers: { k: b } }',
      ['tracing.headers.k *** → ***'],
    ],
  ] as [string, string, string, string[]][])(
    'the differences of two configurations are %s',
    ([, before, after, changes]) => {
      expect(differencesOf(before, after)).toEqual(changes)
    },
  )

  it('the differences of two configurations are at most twenty', () => {
    const many = (value: number) => Array.from({ length: 25 }, (_, i) => `k${i}: ${value}`).join('\n')
    const changes = differencesOf(many(1), many(2))
    expect(changes).toHaveLength(21)
    expect(changes.at(-1)).toBe('5 more')
  })

  it('require that the other file is readable', () => {
    expect(() => differences('a: [', { a: 1 }, 'old.yaml')).toThrow(/^old\.yaml:1:\d+: /)
  })
})
