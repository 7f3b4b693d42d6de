import { createHmac, createPublicKey, randomUUID } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Identity } from '../../src/authenticate/bearer.ts'
import type { KeySource } from '../../src/authenticate/jwks.ts'
import { GatewayError } from '../../src/errors.ts'
import { makeKey, signJws, startIssuer, type TestIssuer, type TestKey } from '../helpers/issuer.ts'
import { createServing, keysOf, trust } from './trust.ts'

const ALGORITHMS = ['PS256', 'ES256', 'EdDSA', 'RS256']
const mallory = makeKey('RS256', 'mallory')
const malloryEc = makeKey('ES256', 'mallory')
let issuer: TestIssuer
let keys: KeySource
let trap: Server
let trapUrl: string
let sprung = 0

beforeAll(async () => {
  issuer = await startIssuer()
  keys = await keysOf(issuer, { cooldownMs: 600_000 })
  trap = createServer((_, response) => {
    sprung++
    response.end(JSON.stringify({ keys: [mallory.jwk] }))
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => trap.once('listening', resolve))
  trapUrl = `http://127.0.0.1:${(trap.address() as AddressInfo).port}/jwks`
})

afterAll(async () => {
  keys.close()
  trap.close()
  await issuer.close()
})

async function verdict(token: string, type: 'any' | 'strict' = 'any'): Promise<Identity | GatewayError> {
  return createServing(trust(issuer, keys, { type }))([`Bearer ${token}`])
}

const joseTakes = (token: string): Promise<boolean> =>
  jwtVerify(token, createLocalJWKSet(issuer.jwks as JSONWebKeySet), {
    issuer: issuer.issuer,
    audience: issuer.audience,
    algorithms: ALGORITHMS,
    requiredClaims: ['exp'],
    clockTolerance: 5,
  }).then(
    () => true,
    () => false,
  )

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const now = (): number => Math.floor(Date.now() / 1000)
const claims = (): Record<string, unknown> => ({
  iss: issuer.issuer,
  aud: issuer.audience,
  client_id: 'client-1',
  exp: now() + 300,
})
/** Signed by an issuer's key; the kid is that key's. */
const forgedBy = (key: TestKey, header: object): string =>
  signJws({ alg: key.alg, typ: 'at+jwt', ...header }, claims(), key)
/** Signed by the issuer, over any payload. */
const signed = (payload: unknown, header: object = {}): string => {
  const key = issuer.key('RS256')
  return signJws({ alg: 'RS256', kid: key.kid, typ: 'at+jwt', ...header }, payload, key)
}
const unsigned = (alg: unknown, signature = ''): string =>
  `${encode({ alg, typ: 'at+jwt', kid: issuer.key('RS256').kid })}.${encode(claims())}.${signature}`
/** An HMAC keyed by what everybody knows. */
function mac(secret: string | Buffer, alg = 'HS256', header: object = {}): string {
  const input = `${encode({ alg, typ: 'at+jwt', ...header })}.${encode(claims())}`
  return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`
}
const publicPem = (): string =>
  createPublicKey(issuer.key('RS256').privateKey).export({ type: 'spki', format: 'pem' }).toString()

/** Tokens that jose refuses as well. */
const FORGED: Readonly<Record<string, () => string>> = {
  'alg none, no signature': () => unsigned('none'),
  'alg none with a signature': () => unsigned('none', 'AAAA'),
  'alg NONE': () => unsigned('NONE', 'AAAA'),
  'alg nOnE': () => unsigned('nOnE', 'AAAA'),
  'no alg': () => unsigned(undefined, 'AAAA'),
  'alg that is a list': () => unsigned(['RS256'], 'AAAA'),
  'alg in lower case': () => issuer.token({}, { header: { alg: 'ps256' } }),
  'alg that the list leaves out': () => issuer.token({}, { alg: 'RS256', header: { alg: 'RS512' } }),
  'an HMAC by the public key as PEM': () => mac(publicPem(), 'HS256', { kid: issuer.key('RS256').kid }),
  'an HMAC by the public key as DER': () =>
    mac(createPublicKey(issuer.key('RS256').privateKey).export({ type: 'spki', format: 'der' })),
  'an HMAC by the public key as JWK': () => mac(JSON.stringify(issuer.key('RS256').jwk)),
  'an HMAC by nothing': () => mac(''),
  'an HMAC that calls itself RS256': () => mac(publicPem(), 'RS256', { kid: issuer.key('RS256').kid }),
  'RS256 with the key for PS256': () => issuer.token({}, { alg: 'PS256', header: { alg: 'RS256' } }),
  'ES256 with the kid of an RSA key': () =>
    issuer.token({}, { alg: 'ES256', header: { kid: issuer.key('RS256').kid } }),
  'a key of our own, no kid': () => forgedBy(mallory, {}),
  'a key of our own, its kid': () => forgedBy(mallory, { kid: 'mallory' }),
  'a key of our own, the issuer’s kid': () => forgedBy(mallory, { kid: issuer.key('RS256').kid }),
  'a kid that is a path': () => forgedBy(mallory, { kid: '../../../../dev/null' }),
  'a kid that is a query': () => forgedBy(mallory, { kid: "x' UNION SELECT 'AA" }),
  'a kid that is a URL': () => forgedBy(mallory, { kid: trapUrl }),
  'a kid that is __proto__': () => forgedBy(mallory, { kid: '__proto__' }),
  'a kid that is constructor': () => forgedBy(mallory, { kid: 'constructor' }),
  'a kid that is a number': () => forgedBy(mallory, { kid: 0 }),
  'a kid that is null': () => forgedBy(mallory, { kid: null }),
  'an embedded jwk': () => forgedBy(mallory, { jwk: mallory.jwk }),
  'an embedded jwk and its kid': () => forgedBy(mallory, { jwk: mallory.jwk, kid: 'mallory' }),
  'an embedded EC jwk': () => forgedBy(malloryEc, { jwk: malloryEc.jwk }),
  'a jku': () => forgedBy(mallory, { jku: trapUrl, kid: 'mallory' }),
  'an x5u': () => forgedBy(mallory, { x5u: trapUrl }),
  'an x5c': () => forgedBy(mallory, { x5c: ['MIIB'] }),
  'a crit that nobody knows': () => issuer.token({}, { header: { crit: ['exp'], exp: now() + 300 } }),
  'an empty crit': () => issuer.token({}, { header: { crit: [] } }),
  'a crit that is no list': () => issuer.token({}, { header: { crit: 'b64' } }),
  'b64 false': () => issuer.token({}, { header: { crit: ['b64'], b64: false } }),
  'r and s of zero': () => replaceSignature(issuer.token({}, { alg: 'ES256' }), Buffer.alloc(64)),
  'r and s of the order': () => replaceSignature(issuer.token({}, { alg: 'ES256' }), ORDER_TWICE),
  'an ECDSA signature as DER': () =>
    replaceSignature(issuer.token({}, { alg: 'ES256' }), Buffer.from('3006020101020101', 'hex')),
  'an RSA signature of zeros': () => replaceSignature(issuer.token({}, { alg: 'RS256' }), Buffer.alloc(256)),
  'an RSA signature of one': () =>
    replaceSignature(issuer.token({}, { alg: 'RS256' }), Buffer.concat([Buffer.alloc(255), Buffer.of(1)])),
  'an EdDSA signature of zeros': () => replaceSignature(issuer.token({}, { alg: 'EdDSA' }), Buffer.alloc(64)),
  'another token’s signature': () =>
    `${issuer.token().split('.').slice(0, 2).join('.')}.${issuer.token({ client_id: 'other' }).split('.')[2]}`,
  'another client’s payload': () => {
    const [head, , signature] = issuer.token().split('.')
    return `${head}.${encode({ ...claims(), client_id: 'other' })}.${signature}`
  },
  'another audience': () => issuer.token({ aud: 'https://other.example.com' }),
  'an audience that begins alike': () => issuer.token({ aud: `${issuer.audience}.evil.example` }),
  'a list of other audiences': () => issuer.token({ aud: ['a', 'b'] }),
  'an empty list of audiences': () => issuer.token({ aud: [] }),
  'no audience': () => issuer.token({ aud: undefined }),
  'an audience in a list in a list': () => issuer.token({ aud: [[issuer.audience]] }),
  'an audience that is an object': () => issuer.token({ aud: { 0: issuer.audience, length: 1 } }),
  'another issuer': () => issuer.token({ iss: 'https://identity.evil.example/oidc' }),
  'the issuer with a slash': () => issuer.token({ iss: `${issuer.issuer}/` }),
  'the issuer in a list': () => issuer.token({ iss: [issuer.issuer] }),
  'no issuer': () => issuer.token({ iss: undefined }),
  expired: () => issuer.token({ exp: now() - 60 }),
  'expired a leeway ago': () => issuer.token({ exp: now() - 6 }),
  'no exp': () => issuer.token({ exp: undefined }),
  'an exp that is a string': () => issuer.token({ exp: String(now() + 300) }),
  'an exp that is null': () => issuer.token({ exp: null }),
  'an exp that is a list': () => issuer.token({ exp: [now() + 300] }),
  'not yet valid': () => issuer.token({ nbf: now() + 60 }),
  'an nbf that is a string': () => issuer.token({ nbf: 'now' }),
  'an iat that is a string': () => issuer.token({ iat: 'now' }),
  'a list for a payload': () => signed([claims()]),
  'null for a payload': () => signed(null),
  'a string for a payload': () => signed('claims'),
  'an empty payload': () => signed(Buffer.alloc(0)),
  'a payload that is no JSON': () => signed(Buffer.from('{"iss":')),
  'a payload that is no UTF-8': () =>
    signed(
      Buffer.concat([
        Buffer.from(JSON.stringify(claims()).slice(0, -1)),
        Buffer.from([0x2c, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
      ]),
    ),
  'a payload of a thousand brackets': () => signed(Buffer.from('['.repeat(1000))),
  'an encrypted token': () => `${encode({ alg: 'RSA-OAEP', enc: 'A256GCM' })}.AAAA.AAAA.AAAA.AAAA`,
  'an opaque token': () => 'c29tZXRoaW5nIGVsc2U',
  'a client assertion': () => {
    const assertion = {
      iss: 'client-1',
      sub: 'client-1',
      aud: issuer.issuer,
      exp: now() + 60,
      jti: randomUUID(),
    }
    return signJws({ alg: 'RS256', kid: 'mallory' }, assertion, mallory)
  },
  'an id_token': () =>
    issuer.token({ aud: 'client-1', nonce: 'n', at_hash: 'h' }, { header: { typ: 'JWT' } }),
}

/** Tokens that jose takes when asked for nothing more than signature, issuer, audience and times. */
const NOT_ACCESS: Readonly<Record<string, () => string>> = {
  'an id_token for our audience too': () =>
    issuer.token({ aud: ['client-1', issuer.audience], nonce: 'n' }, { header: { typ: undefined } }),
  'an id_token from the authorisation endpoint': () =>
    issuer.token({ c_hash: 'h' }, { header: { typ: 'JWT' } }),
  'a logout token': () => issuer.token({ events: {} }, { header: { typ: 'logout+jwt' } }),
  'a logout token without typ': () => issuer.token({ events: {} }, { header: { typ: undefined } }),
  'a request object': () => issuer.token({}, { header: { typ: 'oauth-authz-req+jwt' } }),
  'a typed client assertion': () => issuer.token({}, { header: { typ: 'client-authentication+jwt' } }),
  'a DPoP proof': () => issuer.token({}, { header: { typ: 'dpop+jwt' } }),
  'an introspection answer': () => issuer.token({}, { header: { typ: 'token-introspection+jwt' } }),
  'a refresh token': () => issuer.token({}, { header: { typ: 'application/rt+jwt' } }),
  'a typ that is no string': () => issuer.token({}, { header: { typ: ['at+jwt'] } }),
  'an empty typ': () => issuer.token({}, { header: { typ: '' } }),
  'bound to a DPoP key': () => issuer.token({ cnf: { jkt: 'x' } }),
  'bound to a certificate': () => issuer.token({ cnf: { 'x5t#S256': 'x' } }),
  'bound to nothing that we know': () => issuer.token({ cnf: null }),
  'b64 true': () => issuer.token({}, { header: { crit: ['b64'], b64: true } }),
  'b64 without crit': () => issuer.token({}, { header: { b64: true } }),
  'no client': () => issuer.token({ client_id: undefined }),
  'an empty client': () => issuer.token({ client_id: '' }),
  'a client that is a number': () => issuer.token({ client_id: 1 }),
  'a client that is a list': () => issuer.token({ client_id: ['client-1'] }),
  'a client with half a surrogate pair': () => issuer.token({ client_id: 'a\ud800' }),
  'a user with half a surrogate pair': () => issuer.token({ sub: '\udc00a' }),
  'a user that is a number': () => issuer.token({ sub: 7 }),
  'an empty user': () => issuer.token({ sub: '' }),
  'a client that comes by __proto__': () =>
    signed(
      Buffer.from(
        JSON.stringify({ ...claims(), client_id: undefined }).replace('{', '{"__proto__":{"client_id":"a"},'),
      ),
    ),
  'too long': () => issuer.token({ scope: 'a'.repeat(20_000) }),
}

const ORDER_TWICE = Buffer.from(
  'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551'.repeat(2),
  'hex',
)

function replaceSignature(token: string, signature: Buffer): string {
  return `${token.slice(0, token.lastIndexOf('.'))}.${signature.toString('base64url')}`
}

function expectRefused(refusal: Identity | GatewayError, token: string): void {
  expect(refusal).toBeInstanceOf(GatewayError)
  const { status, headers, message, cause, oauthError } = refusal as GatewayError
  expect(status).toBe(401)
  expect(oauthError).toBe('invalid_token')
  expect(headers['WWW-Authenticate']).toMatch(
    /^Bearer realm="test", error="invalid_token", error_description="[ !#-[\]-~]+"$/,
  )
  for (const part of token.split('.').filter((part) => part.length > 8)) {
    expect(`${message} ${String(cause)} ${JSON.stringify(headers)}`).not.toContain(part)
  }
}

describe('tokens that are no access tokens of the issuer', () => {
  it.each(Object.keys(FORGED))('refuses %s, as jose does', async (name) => {
    const token = FORGED[name]!()
    expect(await joseTakes(token)).toBe(false)
    expectRefused(await verdict(token), token)
    expectRefused(await verdict(token, 'strict'), token)
  })

  it.each(Object.keys(NOT_ACCESS))('refuses %s, which jose takes', async (name) => {
    const token = NOT_ACCESS[name]!()
    expect(await joseTakes(token)).toBe(true)
    expectRefused(await verdict(token), token)
    expectRefused(await verdict(token, 'strict'), token)
  })

  it('follows no pointer that a token carries', () => {
    expect(sprung).toBe(0)
  })
})

describe('access tokens', () => {
  const takes: Readonly<Record<string, () => string>> = {
    plain: () => issuer.token(),
    'with a user and scopes': () => issuer.token({ sub: 'user-1', scope: 'openid accounts:read' }),
    'for several audiences': () => issuer.token({ aud: ['https://other.example.com', issuer.audience] }),
    'with fractional times': () => issuer.token({ exp: now() + 10.5, nbf: now() - 0.5, iat: now() + 0.25 }),
    'expired within the leeway': () => issuer.token({ exp: now() - 2 }),
    'valid from within the leeway': () => issuer.token({ nbf: now() + 2 }),
    'issued in the future': () => issuer.token({ iat: now() + 60 }),
    'of an issuer that writes the long typ': () =>
      issuer.token({}, { header: { typ: 'application/at+jwt' } }),
    'of an issuer that writes AT+JWT': () => issuer.token({}, { header: { typ: 'AT+JWT' } }),
    'without kid': () => issuer.token({}, { header: { kid: undefined } }),
    'that carry keys nobody needs': () => issuer.token({}, { header: { jku: trapUrl, jwk: mallory.jwk } }),
    'with a nonce, being typed': () => issuer.token({ nonce: 'n' }),
    'of which the last of two equal claims counts': () =>
      signed(Buffer.from(JSON.stringify(claims()).replace('{', '{"client_id":"first",'))),
  }
  it.each(Object.keys(takes))('takes those %s, as jose does', async (name) => {
    const token = takes[name]!()
    expect(await joseTakes(token)).toBe(true)
    expect(await verdict(token)).toMatchObject({ client: 'client-1' })
    expect(await verdict(token, 'strict')).toMatchObject({ client: 'client-1' })
  })

  it.each([undefined, 'JWT', 'jwt', 'application/jwt'])('takes typ %s unless strict', async (typ) => {
    const token = issuer.token({}, { header: { typ } })
    expect(await verdict(token)).toMatchObject({ client: 'client-1' })
    expectRefused(await verdict(token, 'strict'), token)
  })
})
