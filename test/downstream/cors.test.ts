import { describe, expect, it } from 'vitest'
import { corsMethods, corsOf, createCors, ownCorsFields, preflightReply } from '../../src/downstream/cors.ts'
import { type Pattern, parsePattern } from '../../src/downstream/pattern.ts'
import { createRouter } from '../../src/downstream/router.ts'
import { fieldsObject } from '../helpers/fields.ts'

const APP = 'https://app.example.com'
const settings = { origins: [APP, 'http://localhost:3000'], credentials: false, maxAgeMs: 600_900 }
const listed = createCors(settings, 'X-Request-Id')
const any = createCors({ ...settings, origins: ['*'] }, 'X-Request-Id')
const withCookies = createCors({ ...settings, credentials: true }, 'x-fapi-interaction-id')

describe('allows', () => {
  it.each([
    [APP, APP],
    ['http://localhost:3000', 'http://localhost:3000'],
    ['https://app.example.com.evil.example', undefined],
    ['https://app.example.com:8443', undefined],
    ['http://app.example.com', undefined],
    ['https://evil.example', undefined],
    ['https://APP.example.com', undefined],
    [`${APP}, ${APP}`, undefined],
    ['null', undefined],
    ['', undefined],
    ['__proto__', undefined],
    ['*', undefined],
    [undefined, undefined],
  ])('of the origins in a list, %s only if it is one of them', (origin, allowed) => {
    expect(listed.fieldsFor(origin).allow[1]).toBe(allowed)
  })

  it.each([
    [APP, '*'],
    ['null', '*'],
    [undefined, undefined],
  ])('with "*", %s as any origin, without naming it', (origin, allowed) => {
    expect(any.fieldsFor(origin).allow).toEqual(
      allowed === undefined ? [] : ['Access-Control-Allow-Origin', allowed],
    )
  })
})

it('adds the origin, the exposed fields and Vary, and credentials if they are allowed', () => {
  expect(fieldsObject(withCookies.fieldsFor(APP).text)).toEqual({
    'Access-Control-Allow-Origin': APP,
    'Access-Control-Allow-Credentials': 'true',
    'Access-Control-Expose-Headers':
      'X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, x-fapi-interaction-id',
    Vary: 'Origin',
  })
  expect(fieldsObject(listed.fieldsFor(APP).text)).not.toHaveProperty('Access-Control-Allow-Credentials')
  expect(fieldsObject(withCookies.fieldsFor('https://evil.example').text)).toEqual({ Vary: 'Origin' })
})

it('adds only Vary to a configured refusal that names an origin itself', () => {
  const fields = any.fieldsFor(APP)
  expect(ownCorsFields(fields, { 'access-control-Allow-origin': '*' })).toBe('\r\nVary: Origin')
  expect(ownCorsFields(fields, { 'Retry-After': '1' })).toBe(fields.text)
})

describe('a preflight', () => {
  const other = createCors({ ...settings, origins: ['*'] }, 'X-Request-Id')
  const route = (match: string, cors: typeof listed | undefined, authenticate: 'none' | 'par' = 'none') => ({
    ...(parsePattern(match) as Pattern),
    ...{ match, cors, authenticate, scope: [], maxBody: 0 },
  })
  const match = createRouter([
    route('POST /par', undefined, 'par'),
    route('GET /items', listed),
    route('POST /items', listed),
    route('PUT /items', other),
    route('DELETE /items', undefined),
    route('/open/*', listed),
    route('GET /closed', undefined),
    route('GET,REPORT /reports', listed),
  ])
  const matchOf = (path: string) => (method: string) => match(method, 'localhost', path.slice(1).split('/'))

  it.each([
    ['GET', '/items', listed],
    ['PUT', '/items', other],
    ['DELETE', '/items', undefined],
    ['PATCH', '/items', listed],
    ['PROPFIND', '/items', any],
    ['GET', '/closed', undefined],
    ['POST', '/closed', undefined],
    ['POST', '/par', undefined],
    ['DELETE', '/par', undefined],
    ['GET', '/nothing', any],
  ])('of %s %s has the settings of the route that the request would match', (method, path, cors) => {
    expect(corsOf(matchOf(path)(method), any)).toBe(cors)
  })

  it.each([
    ['/items', listed, 'GET HEAD POST'],
    ['/items', other, 'PUT'],
    ['/reports', listed, 'GET HEAD REPORT'],
    ['/open/a', listed, 'GET HEAD POST PUT PATCH DELETE OPTIONS'],
    ['/nothing', any, 'GET HEAD POST PUT PATCH DELETE OPTIONS'],
  ])('to %s allows only the methods of routes with the same settings', (path, cors, methods) => {
    expect(corsMethods(cors, matchOf(path)).join(' ')).toBe(methods)
  })

  const VARY = 'Access-Control-Request-Method, Access-Control-Request-Headers'
  const reply = (isAllowed: boolean, names?: string) =>
    preflightReply(
      listed,
      isAllowed,
      ['GET', 'HEAD'],
      names ? { 'access-control-request-headers': names } : {},
    )

  it('allows the methods, and the fields as requested, for maxAge in whole seconds', () => {
    const { status, body, headers } = reply(true, 'authorization,content-type, x-a')
    expect([status, body]).toEqual([204, ''])
    expect(fieldsObject(headers)).toEqual({
      Vary: VARY,
      'Access-Control-Allow-Methods': 'GET, HEAD',
      'Access-Control-Allow-Headers': 'authorization,content-type, x-a',
      'Access-Control-Max-Age': '600',
    })
  })

  it.each(['x-a: b', 'x-a\u00e9', '"x"', 'x(y)', 'a'.repeat(2049)])(
    'allows no field if the names are malformed or too long: %.20s',
    (names) => {
      expect(fieldsObject(reply(true, names).headers)).not.toHaveProperty('Access-Control-Allow-Headers')
    },
  )

  it('permits nothing to an origin that is not allowed', () => {
    expect(fieldsObject(reply(false, 'authorization').headers)).toEqual({ Vary: VARY })
  })
})
