import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { makeKey } from '../helpers/issuer.ts'
import {
  assertion,
  clientKeys,
  encode,
  guardOf,
  ISSUER,
  KEY,
  KEYS,
  type JwtOptions,
  NOW,
  OTHER_KEY,
  PAR,
  PASSED,
  plain,
  push,
  refusal,
  requestObject,
  TOKEN,
} from '../helpers/par-request.ts'

const CLIENT = { authentication: 'private_key_jwt', keys: KEYS }
const guard = guardOf({ acme: CLIENT, other: CLIENT })
const strict = guardOf({ acme: CLIENT }, { assertionAudience: 'strict' })
const FOREIGN = 'https://elsewhere.example.com'

const send = (claims: object = {}, options: JwtOptions = {}, by = guard): Promise<unknown> =>
  push(by, { ...plain('acme'), ...assertion('acme', { ...claims }, options) })

describe('a valid client assertion', () => {
  it.each([
    ['is for the issuer', {}],
    ['is for the token endpoint', { aud: TOKEN }],
    ['is for the PAR endpoint', { aud: PAR }],
    ['is for the issuer and the token endpoint', { aud: [ISSUER, TOKEN] }],
    ['is for one of ours among others', { aud: [FOREIGN, PAR] }],
    ['has times with fractions', { iat: NOW - 0.75, nbf: NOW - 0.5, exp: NOW + 3599.25 }],
    ['lives for an hour', { exp: NOW + 3600 }],
    ['contains only the required claims', { iat: undefined, nbf: undefined }],
    ['expired within the leeway', { exp: NOW - 9.9 }],
    ['is to be valid within the leeway', { nbf: NOW + 10 }],
    ['comes from a clock that is ahead', { iat: NOW + 60, exp: NOW + 90 }],
    ['has claims of its own', { 'https://example.com/x': 1e308, client_id: 'else' }],
  ])('%s', async (_, claims) => {
    expect(await send(claims)).toBe(PASSED)
  })

  it.each([
    ['no typ', { typ: undefined }],
    ['the typ JWT', { typ: 'JWT' }],
    ['the typ of RFC 10070', { typ: 'client-authentication+jwt' }],
    ['its media type in full', { typ: 'application/Client-Authentication+JWT' }],
    ['no kid', { kid: undefined }],
    ['a key of its own, which is ignored', { jwk: OTHER_KEY.jwk, jku: 'http://127.0.0.1:1/' }],
  ])('a valid client assertion may have %s', async (_, header) => {
    expect(await send({}, { header })).toBe(PASSED)
  })

  it('a valid client assertion may be repeated: the identity backend checks its jti', async () => {
    const fields = { ...plain('acme'), ...assertion('acme') }
    expect(await push(guard, fields)).toBe(PASSED)
    expect(await push(guard, fields)).toBe(PASSED)
  })

  it('names the client if there is no client_id', async () => {
    const fields = { request: requestObject('acme'), ...assertion('acme') }
    expect(await push(guard, fields)).toBe(PASSED)
  })

  it.each(['RS256', 'ES256', 'EdDSA'] as const)(
    'a valid client assertion may be signed with %s',
    async (alg) => {
      const key = makeKey(alg)
      const keys = clientKeys({ keys: [KEY.jwk, key.jwk] })
      expect(await send({}, { key }, guardOf({ acme: { ...CLIENT, keys } }))).toBe(PASSED)
      expect(await send({}, { key }, guard)).toMatchObject({ status: 401 })
    },
  )
})

it.each(['JWT', 'JOSE', 'application/JOSE', 'client-authentication+jwt'])(
  'a valid client assertion may have the typ %s',
  async (typ) => {
    expect(await send({}, { header: { typ } })).toBe(PASSED)
  },
)

it('a MAC is for the backend, unless the client must use its keys', async () => {
  const { keys } = CLIENT
  const mac = { header: { alg: 'HS256' } }
  expect(await send({}, mac, guardOf({ acme: { keys } }))).toBe(PASSED)
  expect(await send({}, mac, guardOf({ acme: { keys, authentication: 'client_secret_jwt' } }))).toBe(PASSED)
  const keyed = guardOf({ acme: { keys, authentication: 'private_key_jwt' } })
  expect(await send({}, mac, keyed)).toMatchObject({ status: 401 })
  expect(await send({}, { header: { alg: 'none' } }, guardOf({ acme: { keys } }))).toMatchObject({
    status: 401,
  })
})

describe('a client assertion that is refused', () => {
  it.each([
    ['another iss', { iss: 'other' }, /iss and sub/],
    ['no sub', { sub: undefined }, /iss and sub/],
    ['no iss', { iss: undefined }, /iss and sub/],
    ['another audience', { aud: FOREIGN }, new RegExp(`send the aud ${ISSUER}`)],
    ['no audience', { aud: undefined }, /audience/],
    ['no audience in a list', { aud: [] }, /audience/],
    ['our audience in a list in a list', { aud: [[ISSUER]] }, /audience/],
    ['our audience, almost', { aud: `${ISSUER}/` }, /audience/],
    ['no exp', { exp: undefined }, /must have an exp/],
    ['an exp that is a text', { exp: String(NOW + 60) }, /that is not a number/],
    ['an exp that is null', { exp: null }, /that is not a number/],
    ['an exp that passed', { exp: NOW - 10 }, /expired/],
    ['an exp of long ago', { exp: 0 }, /expired/],
    ['an nbf to come', { nbf: NOW + 10.5 }, /not valid yet/],
    ['an nbf that is a text', { nbf: 'now' }, /that is not a number/],
    ['an iat of tomorrow', { iat: NOW + 86_400, exp: NOW + 90_000 }, /iat in the future/],
    ['no jti', { jti: undefined }, /must have a jti/],
    ['a jti without letters', { jti: '' }, /must have a jti/],
    ['a jti that is a number', { jti: 7 }, /must have a jti/],
  ])('a client assertion that is refused has %s', async (_, claims, words) => {
    expect(await send(claims)).toEqual(refusal(401, 'invalid_client', words))
  })

  it.each([
    ['the key of another', { key: OTHER_KEY }, /signature/],
    ['another algorithm of the same key', { header: { alg: 'RS256' } }, /signature/],
    ['an algorithm of another kind of key', { header: { alg: 'ES256' } }, /signature/],
    ['the kid of no key', { header: { kid: 'key-2' } }, /names a kid that no key of this client has/],
    ['a kid that is a number', { header: { kid: 1 } }, /header/],
    ['HS256', { header: { alg: 'HS256' } }, /algorithm/],
    ['none', { header: { alg: 'none' } }, /algorithm/],
    ['an algorithm by an inherited name', { header: { alg: 'constructor' } }, /algorithm/],
    ['an algorithm that is a list', { header: { alg: ['PS256'] } }, /algorithm/],
    ['crit', { header: { crit: ['exp'], exp: 1 } }, /header/],
    ['an unencoded payload', { header: { b64: false } }, /header/],
    ['the typ of an access token', { header: { typ: 'at+jwt' } }, /header/],
    ['the typ of a request object', { header: { typ: 'oauth-authz-req+jwt' } }, /header/],
    ['a typ that is a number', { header: { typ: 1 } }, /header/],
    ['a payload that is a list', { payload: Buffer.from('[]') }, /not a signed JWT/],
    ['a payload that is cut', { payload: Buffer.from('{"iss":"acme"') }, /not a signed JWT/],
    ['a payload that is not UTF-8', { payload: Buffer.from('{"iss":"\xff"}', 'latin1') }, /not a signed JWT/],
    ['a payload that nests without end', { payload: Buffer.from('{"a":'.repeat(5000)) }, /not a signed JWT/],
  ])('a client assertion that is refused has %s', async (_, options, words) => {
    expect(await send({}, options)).toEqual(refusal(401, 'invalid_client', words))
  })

  it.each([
    ['nothing but dots', '..'],
    ['a word', 'assertion'],
    ['no signature', `${encode({ alg: 'PS256' })}.${encode({ sub: 'acme' })}.`],
    ['five parts', 'e30.e30.e30.e30.e30'],
    ['padding', `${encode({ alg: 'PS256' })}=.${encode({ sub: 'acme' })}.AA`],
  ])('a client assertion that is refused is %s', async (_, text) => {
    const fields = { ...plain('acme'), ...assertion('acme'), client_assertion: text }
    expect(await push(guard, fields)).toEqual(refusal(401, 'invalid_client', /not a signed JWT/))
  })

  it('was changed in flight', async () => {
    const { client_assertion: text } = assertion('acme') as { client_assertion: string }
    const [header, , signature] = text.split('.') as [string, string, string]
    const payload = encode({ iss: 'acme', sub: 'acme', aud: ISSUER, jti: 'x', exp: NOW + 9999 })
    const forged = [header, payload, signature].join('.')
    const fields = { ...plain('acme'), ...assertion('acme'), client_assertion: forged }
    expect(await push(guard, fields)).toEqual(refusal(401, 'invalid_client', /signature/))
  })

  it('a client assertion that is refused is signed with the public key as if it were a secret', async () => {
    const secret = createHmac('sha256', JSON.stringify(KEY.jwk))
    const signed = `${encode({ alg: 'HS256', kid: KEY.kid })}.${encode({ iss: 'acme', sub: 'acme', aud: ISSUER, jti: 'x', exp: NOW + 60 })}`
    const text = `${signed}.${secret.update(signed).digest('base64url')}`
    const fields = { ...plain('acme'), ...assertion('acme'), client_assertion: text }
    expect(await push(guard, fields)).toEqual(refusal(401, 'invalid_client', /algorithm/))
  })

  it('a client assertion that is refused has a sub with half a character, and there is no client_id', async () => {
    const payload = Buffer.from('{"iss":"\\ud800","sub":"\\ud800"}')
    const fields = { request: 'x', ...assertion('x', {}, { payload }) }
    expect(await push(guard, fields)).toEqual(refusal(400, 'invalid_request', /client_id is missing/))
  })

  it('a client assertion that is refused has members twice: the last counts, for the identity backend too', async () => {
    const text = JSON.stringify({ iss: 'acme', sub: 'acme', jti: 'x', exp: NOW + 60 })
    const send = (aud: string) => {
      const payload = Buffer.from(text.replace('{', `{"aud":"${ISSUER}",`).replace('}', `,"aud":"${aud}"}`))
      return push(guard, { ...plain('acme'), ...assertion('acme', {}, { payload }) })
    }
    expect(await send(ISSUER)).toBe(PASSED)
    expect(await send(FOREIGN)).toEqual(refusal(401, 'invalid_client', /audience/))
  })

  it('a client assertion that is refused has a number beyond all numbers as exp', async () => {
    const payload = Buffer.from(`{"iss":"acme","sub":"acme","aud":"${ISSUER}","jti":"x","exp":1e999}`)
    expect(await send({}, { payload })).toEqual(refusal(401, 'invalid_client', /that is not a number/))
  })
})

describe('strict about the audience', () => {
  it.each([
    ['the issuer', ISSUER],
    ['a list of only the issuer', [ISSUER]],
  ])('accepts %s', async (_, aud) => {
    expect(await send({ aud }, {}, strict)).toBe(PASSED)
  })

  it.each([
    ['the token endpoint', TOKEN],
    ['the PAR endpoint', PAR],
    ['a list of the token endpoint', [TOKEN]],
    ['the issuer and the token endpoint', [ISSUER, TOKEN]],
    ['the issuer twice', [ISSUER, ISSUER]],
    ['an empty list', []],
  ])('refuses %s', async (_, aud) => {
    expect(await send({ aud }, {}, strict)).toEqual(refusal(401, 'invalid_client', /audience/))
  })
})

describe('whose assertions are not verified', () => {
  it.each([
    ['a client without known keys', { authentication: 'private_key_jwt' }],
    ['a client that signs with its secret', { authentication: 'client_secret_jwt', keys: KEYS }],
  ])('%s', async (_, settings) => {
    expect(await send({ exp: 1 }, { key: OTHER_KEY }, guardOf({ acme: settings }))).toBe(PASSED)
  })
})
