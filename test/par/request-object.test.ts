import { describe, expect, it } from 'vitest'
import {
  assertion,
  encode,
  guardOf,
  ISSUER,
  KEYS,
  type JwtOptions,
  NOW,
  OTHER_KEY,
  PASSED,
  plain,
  push,
  refusal,
  requestObject,
  TOKEN,
  unsignedObject,
} from '../helpers/par-request.ts'

const guard = guardOf({
  on: { requestObjectSigningAlg: 'PS256', keys: KEYS },
  onWithoutKeys: { requestObjectSigningAlg: 'PS256' },
  none: { requestObjectSigningAlg: 'none', keys: KEYS },
  noneWithoutKeys: { requestObjectSigningAlg: 'none' },
  unset: { keys: KEYS },
  mac: { requestObjectSigningAlg: 'HS256', keys: KEYS },
})
const ALL = ['on', 'onWithoutKeys', 'none', 'noneWithoutKeys', 'unset']
const NOT_ON = ['none', 'noneWithoutKeys', 'unset']

const send = (client: string, request: string, more: object = {}): Promise<unknown> =>
  push(guard, { client_id: client, request, ...more })
const signed = (client: string, claims: object = {}, options: JwtOptions = {}): Promise<unknown> =>
  send(client, requestObject(client, { ...claims }, options))

const JWE = `${encode({ alg: 'RSA-OAEP', enc: 'A256GCM' })}.a2V5.aXY.dGV4dA.dGFn`
const badObject = (words: RegExp): unknown => refusal(400, 'invalid_request_object', words)
const badRequest = (words: RegExp): unknown => refusal(400, 'invalid_request', words)

describe('a signed request object', () => {
  it.each([
    ['no nbf, as real clients send none', {}],
    ['an nbf', { nbf: NOW }],
    ['times with fractions', { iat: NOW - 0.5, exp: NOW + 0.5 }],
    ['no times and no jti', { iat: undefined, exp: undefined, jti: undefined }],
    ['an hour to live', { exp: NOW + 3600 }],
    ['several audiences', { aud: [TOKEN, ISSUER] }],
    ['claims as an object', { claims: { id_token: { sub: 'true' } } }],
    ['claims as a text', { claims: '{"id_token":{"sub":"true"}}' }],
    ['no claims', { claims: undefined }],
    ['numbers and members of its own', { max_age: 86_400, expirationDateTime: null, deep: [[[{}]]] }],
  ])('a signed request object may have %s', async (_, claims) => {
    for (const client of ALL) expect(await signed(client, claims)).toBe(PASSED)
  })

  it.each([['JWT'], ['application/oauth-authz-req+jwt'], ['OAuth-Authz-Req+JWT'], [undefined]])(
    'a signed request object may have the typ %s',
    async (typ) => {
      for (const client of ALL) expect(await signed(client, {}, { header: { typ } })).toBe(PASSED)
    },
  )

  it.each([
    ['expired', { exp: NOW - 10 }, /expired/],
    ['has an exp that is a text', { exp: 'later' }, /that is not a number/],
    ['is not valid yet', { nbf: NOW + 11 }, /not valid yet/],
    ['is from the future', { iat: NOW + 3600 }, /future/],
    ['is for another audience', { aud: TOKEN }, new RegExp(`send the aud ${ISSUER}`)],
    ['is of another issuer', { iss: 'other' }, /iss/],
    ['is of another client', { client_id: 'other' }, /client_id/],
    ['has a client_id that is a list', { client_id: ['on'] }, /client_id/],
    ['holds a request', { request: 'e30.e30.' }, /must not hold request/],
    ['holds a request_uri', { request_uri: '' }, /must not hold request/],
    ['holds a request that is null', { request: null }, /must not hold request/],
  ])('a signed request object is refused if it %s', async (_, claims, words) => {
    for (const client of ALL) expect(await signed(client, claims)).toEqual(badObject(words))
  })

  it.each([
    ['lacks a scope', { scope: undefined }, /Send scope in the request object/],
    ['lacks openid in its scope', { scope: 'id:1' }, /openid/],
    ['has a scope that is a list', { scope: ['openid'] }, /Send scope/],
    ['lacks a response_type', { response_type: undefined }, /Send response_type/],
    ['lacks a redirect_uri', { redirect_uri: '' }, /Send redirect_uri/],
    ['lacks a client_id', { client_id: undefined }, /Send client_id/],
    ['has claims that are not JSON', { claims: '{' }, /claims/],
    ['has claims that are a list', { claims: [] }, /claims/],
    ['has claims that are null', { claims: null }, /claims/],
    ['has claims without id_token', { claims: {} }, /claims/],
  ])('a signed request object is refused if it %s, with any other parameters', async (_, claims, words) => {
    for (const client of ALL) {
      const request = requestObject(client, { ...claims })
      expect(await send(client, request, plain(client))).toEqual(badRequest(words))
    }
  })

  it.each([
    ['an extension that must be understood', { crit: ['x'], x: 1 }],
    ['the typ of an assertion', { typ: 'client-authentication+jwt' }],
    ['the typ of an access token', { typ: 'at+jwt' }],
    ['a kid that is an object', { kid: {} }],
  ])('a signed request object is refused with %s', async (_, header) => {
    for (const client of ALL) expect(await signed(client, {}, { header })).toEqual(badObject(/header/))
  })

  it('a signed request object may differ from the form, whose client_id is the only parameter that counts', async () => {
    const beside = plain('on', { scope: 'x', redirect_uri: undefined, claims: '[', response_type: undefined })
    expect(await send('on', requestObject('on'), beside)).toBe(PASSED)
  })

  it('a signed request object is refused with a bad signature if the client has keys', async () => {
    for (const client of ['on', 'none', 'unset']) {
      expect(await signed(client, {}, { key: OTHER_KEY })).toEqual(badObject(/signature/))
      expect(await signed(client, {}, { header: { kid: 'key-2' } })).toEqual(badObject(/kid/))
    }
    expect(await signed('noneWithoutKeys', {}, { key: OTHER_KEY })).toBe(PASSED)
  })

  it('a signed request object cannot be a client assertion', async () => {
    for (const client of ALL) {
      const { client_assertion: text } = assertion(client)
      expect(await send(client, String(text))).toMatchObject({ status: 400 })
    }
  })
})

describe('signing on', () => {
  it.each(['RS256', 'ES256', 'HS256', 'PS384', 'ps256', 'constructor'])('refuses %s', async (alg) => {
    for (const client of ['on', 'onWithoutKeys']) {
      expect(await signed(client, {}, { header: { alg } })).toEqual(badObject(/signed with PS256/))
    }
  })

  it('refuses an unsigned object', async () => {
    for (const client of ['on', 'onWithoutKeys']) {
      expect(await send(client, unsignedObject(client))).toEqual(badObject(/signed with PS256/))
    }
    const half = requestObject('on').replace(/[^.]+$/, '')
    expect(await send('on', half)).toEqual(badObject(/not a JWT/))
  })

  it('refuses an encrypted object, which cannot be checked', async () => {
    expect(await send('on', JWE)).toEqual(badObject(/signed with PS256 and not encrypted/))
  })

  it('asks for iss and aud', async () => {
    for (const client of ['on', 'onWithoutKeys', 'mac']) {
      const header = client === 'mac' ? { alg: 'HS256' } : {}
      expect(await signed(client, { aud: undefined }, { header })).toEqual(badObject(/aud/))
      expect(await signed(client, { iss: undefined }, { header })).toEqual(badObject(/iss/))
    }
    for (const client of NOT_ON) {
      expect(await signed(client, { aud: undefined, iss: undefined })).toBe(PASSED)
    }
  })

  it('signing on with a MAC leaves the signature to the identity backend, but no more', async () => {
    const header = { alg: 'HS256' }
    expect(await signed('mac', {}, { header, key: OTHER_KEY })).toBe(PASSED)
    expect(await signed('mac', { exp: 1 }, { header })).toEqual(badObject(/expired/))
    expect(await signed('mac')).toEqual(badObject(/signed with HS256/))
    expect(await send('mac', unsignedObject('mac'))).toEqual(badObject(/signed with HS256/))
  })
})

describe('the setting none, or no setting', () => {
  it.each(NOT_ON)('accepts an unsigned object of %s', async (client) => {
    expect(await send(client, unsignedObject(client))).toBe(PASSED)
    expect(await send(client, unsignedObject(client, {}, { typ: 'JWT' }))).toBe(PASSED)
  })

  it.each(NOT_ON)('passes on the encrypted object of %s, and its MAC', async (client) => {
    expect(await send(client, JWE)).toBe(PASSED)
    expect(await send(client, JWE.replace('.a2V5.', '..'))).toBe(PASSED)
    expect(await signed(client, {}, { header: { alg: 'HS512' }, key: OTHER_KEY })).toBe(PASSED)
  })

  it('checks the claims of an unsigned object', async () => {
    for (const client of NOT_ON) {
      expect(await send(client, unsignedObject(client, { exp: 1 }))).toEqual(badObject(/expired/))
      expect(await send(client, unsignedObject(client, { client_id: 'on' }))).toEqual(badObject(/client_id/))
      expect(await send(client, unsignedObject(client, { scope: 'x' }))).toEqual(badRequest(/openid/))
    }
  })

  it.each([
    ['none with a signature', requestObject('none', {}, { header: { alg: 'none' } })],
    ['None', unsignedObject('none', {}, { alg: 'None' })],
    ['an algorithm without a signature', unsignedObject('none', {}, { alg: 'PS256' })],
    ['no algorithm', unsignedObject('none', {}, { alg: undefined })],
    ['a word', 'request'],
    ['a single dot', '.'],
    ['two dots', '..'],
    ['two parts', 'e30.e30'],
    ['four parts', 'e30.e30.e30.e30'],
    ['six parts', `${JWE}.x`],
    ['a payload that is a list', `${encode({ alg: 'none' })}.${encode([])}.`],
    [
      'a payload that nests without end',
      `${encode({ alg: 'none' })}.${Buffer.from('['.repeat(40_000)).toString('base64url')}.`,
    ],
    ['padding', `${encode({ alg: 'none' })}=.e30.`],
    ['a URL', 'https://client.example.com/request.jwt'],
    ['an unknown algorithm', requestObject('none', {}, { header: { alg: 'ES256K' } })],
    ['an algorithm that is not a string', requestObject('none', {}, { header: { alg: 256 } })],
  ])('refuses %s', async (_, request) => {
    expect(await send('none', request)).toEqual(badObject(/./))
  })

  it('names the algorithms if that of the object is unknown, and refuses an object without one from any client', async () => {
    expect(await signed('none', {}, { header: { alg: 'ES256K' } })).toEqual(
      badObject(/use one such as PS256/),
    )
    for (const alg of [undefined, 256]) {
      expect(await signed('noneWithoutKeys', {}, { header: { alg } })).toEqual(badObject(/is not a JWT/))
    }
  })
})
