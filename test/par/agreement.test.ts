import { expect, it } from 'vitest'
import { makeKey, signJws } from '../helpers/issuer.ts'
import { REDIRECT_URI, SECRET, SIGNING_KEY, startGuardedProvider } from '../helpers/par-provider.ts'
import { assertion as assertionOf, basic, encode, encodeForm } from '../helpers/par-request.ts'

type Members = Readonly<Record<string, unknown>>
interface Push {
  readonly fields: Members
  readonly headers?: Readonly<Record<string, string>>
}

const THIEF = makeKey('PS256', SIGNING_KEY.kid)
const now = (): number => Math.floor(Date.now() / 1000)
const provider = await startGuardedProvider(9)
const { issuer } = provider

const plain = (client: string, more: Members = {}): Members => ({
  client_id: client,
  scope: 'openid id:1ffe704d39629a929c8e293880fb449a',
  redirect_uri: REDIRECT_URI,
  response_type: 'code',
  ...more,
})
const assertion = (client: string, claims: Members = {}, key = SIGNING_KEY, header: Members = {}): Members =>
  assertionOf(client, { aud: issuer, iat: undefined, exp: now() + 60, ...claims }, { key, header })
const objectClaims = (client: string, claims: Members): Members => ({
  ...plain(client),
  iss: client,
  aud: issuer,
  exp: now() + 300,
  ...claims,
})
const object = (client: string, claims: Members = {}, key = SIGNING_KEY, header: Members = {}): string =>
  signJws({ alg: 'PS256', kid: key.kid, ...header }, objectClaims(client, claims), key)
const unsigned = (client: string, claims: Members = {}): string =>
  `${encode({ alg: 'none' })}.${encode(objectClaims(client, claims))}.`

const keyed = (claims: Members = {}, key = SIGNING_KEY, header: Members = {}): Push => ({
  fields: { ...plain('keyed'), ...assertion('keyed', claims, key, header) },
})
const signing = (request: string): Push => ({ fields: { request, ...assertion('signing') } })
const form = (fields: Members): Push => ({ fields: { ...plain('keyed', fields), ...assertion('keyed') } })
const ofUnknown = (client_assertion: string): Push => ({
  fields: { ...plain('unknown'), ...assertion('unknown'), client_assertion },
})
const secret = (fields: Members = plain('secret'), authorization = basic('secret', SECRET)): Push => ({
  fields,
  headers: { authorization },
})

/** Created for each request: an assertion is valid once. */
const SAME: readonly (readonly [string, () => Push])[] = [
  ['an assertion for the issuer', () => keyed()],
  ['an assertion for the token endpoint', () => keyed({ aud: `${issuer}/token` })],
  ['an assertion for a list of the two', () => keyed({ aud: [issuer, `${issuer}/token`] })],
  [
    'an assertion with fractional times and an hour to live',
    () => keyed({ iat: now() - 0.5, exp: now() + 3600.5 }),
  ],
  ['an assertion for another audience', () => keyed({ aud: 'https://elsewhere.example' })],
  ['an assertion of another key', () => keyed({}, THIEF)],
  ['an assertion of an unknown kid', () => keyed({}, SIGNING_KEY, { kid: 'unknown' })],
  ['an assertion of another iss', () => keyed({ iss: 'signing' })],
  ['an assertion that expired', () => keyed({ exp: now() - 60 })],
  ['an assertion without exp', () => keyed({ exp: undefined })],
  ['an assertion not valid yet', () => keyed({ nbf: now() + 120 })],
  ['an assertion without jti', () => keyed({ jti: undefined })],
  ['an assertion of another sub than the client_id', () => keyed({ sub: 'signing', iss: 'signing' })],
  [
    'an assertion without its type',
    () => ({ fields: { ...plain('keyed'), ...assertion('keyed'), client_assertion_type: undefined } }),
  ],
  ['Basic', () => secret()],
  ['Basic without a client_id in the form', () => secret(plain('secret', { client_id: undefined }))],
  ['Basic of a wrong secret', () => secret(plain('secret'), basic('secret', 'wrong'))],
  ['Basic that is not base64', () => secret(plain('secret'), 'Basic !')],
  ['Basic that is not form-encoded', () => secret(plain('secret'), `Basic ${btoa('secret:%')}`)],
  ['Basic of another client', () => secret(plain('keyed'))],
  ['Basic for a client with a key', () => secret(plain('keyed'), basic('keyed', 'x'))],
  ['Basic and a secret', () => secret(plain('secret', { client_secret: SECRET }))],
  ['a secret in the form', () => ({ fields: plain('secret', { client_secret: SECRET }) })],
  ['an unknown client with an assertion that is none', () => ofUnknown('x')],
  ['nothing at all', () => ({ fields: {} })],
  ['an unknown client', () => ({ fields: plain('unknown', { client_secret: 'x' }) })],
  ['a signed object, identified only by the assertion', () => signing(object('signing'))],
  [
    'a signed object and other fields',
    () => ({
      fields: {
        ...signing(object('signing')).fields,
        ...plain('signing', { scope: 'x', response_type: undefined }),
      },
    }),
  ],
  ['an object of another key', () => signing(object('signing', {}, THIEF))],
  ['an object that expired', () => signing(object('signing', { exp: now() - 60 }))],
  ['an object for another audience', () => signing(object('signing', { aud: `${issuer}/token` }))],
  ['an object without an audience', () => signing(object('signing', { aud: undefined }))],
  ['an object of another iss', () => signing(object('signing', { iss: 'keyed' }))],
  ['an object of another client', () => signing(object('signing', { client_id: 'keyed' }))],
  ['an object with a request_uri in it', () => signing(object('signing', { request_uri: 'https://x' }))],
  ['an object with a request in it', () => signing(object('signing', { request: 'x' }))],
  ['an object that is none', () => signing('nonsense')],
  ['an unsigned object of a client with signing on', () => signing(unsigned('signing'))],
  ['an object of another algorithm', () => signing(object('signing', {}, SIGNING_KEY, { alg: 'RS256' }))],
  ['an object without a response_type', () => signing(object('signing', { response_type: undefined }))],
  ['claims', () => form({ claims: '{"id_token":{"sub":{"essential":true}}}' })],
  ['claims "true"', () => form({ claims: '{"id_token":{"sub":"true"}}' })],
  ['an unsigned object', () => secret({ client_id: 'secret', request: unsigned('secret') })],
  ['claims that are not JSON', () => form({ claims: '{' })],
  ['claims that are a list', () => form({ claims: '[]' })],
  ['claims without members', () => form({ claims: '{}' })],
  ['claims that are a text', () => form({ claims: '{"id_token":"x"}' })],
  ['a parameter twice', () => form({ scope: ['openid', 'openid'] })],
  ['parameters without value', () => form({ request: '', client_secret: '', claims: '' })],
  ['no response_type', () => form({ response_type: undefined })],
  ['another redirect_uri', () => form({ redirect_uri: 'https://elsewhere.example/' })],
  ['JSON', () => ({ ...form({}), headers: { 'content-type': 'application/json' } })],
  [
    'a charset',
    () => ({ ...form({}), headers: { 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' } }),
  ],
]

/** Requests that only the guard refuses, or with another error: the error of the guard, and that of the provider. */
const OTHERWISE: readonly (readonly [string, () => Push, string, string])[] = [
  ['no authentication', () => ({ fields: plain('keyed') }), '400 invalid_request', '401 invalid_client'],
  [
    'plain parameters of a client with signing on',
    () => ({ fields: { ...plain('signing'), ...assertion('signing') } }),
    '400 invalid_request',
    '201',
  ],
  ['no scope', () => form({ scope: undefined }), '400 invalid_request', '201'],
  ['no redirect_uri', () => form({ redirect_uri: undefined }), '400 invalid_request', '201'],
  [
    'a request_uri',
    () => form({ request_uri: 'https://x' }),
    '400 invalid_request',
    '400 request_uri_not_supported',
  ],
  ['a request_uri without value', () => form({ request_uri: '' }), '400 invalid_request', '201'],
  [
    'an unknown client with an assertion without sub',
    () => ofUnknown(`${encode({ alg: 'PS256' })}.e30.AA`),
    '400 invalid_request',
    '401 invalid_client',
  ],
  [
    'an iat of tomorrow',
    () => keyed({ iat: now() + 86_400, exp: now() + 90_000 }),
    '401 invalid_client',
    '201',
  ],
  ['the typ of another JWT', () => keyed({}, SIGNING_KEY, { typ: 'at+jwt' }), '401 invalid_client', '201'],
]

async function send(url: string, { fields, headers }: Push): Promise<{ verdict: string; answer: Response }> {
  const type = { 'content-type': 'application/x-www-form-urlencoded' }
  const answer = await fetch(url, {
    method: 'POST',
    body: encodeForm(fields),
    headers: { ...type, ...headers },
  })
  const { error } = (await answer.json()) as { error?: string }
  return { verdict: [answer.status, error].filter(Boolean).join(' '), answer }
}

it.each(SAME)('the guard and the provider answer alike to %s', async (_, make) => {
  const guarded = await send(`${issuer}/request`, make())
  const direct = await send(provider.unguarded, make())
  expect(guarded.verdict).toBe(direct.verdict)
  for (const name of ['cache-control', 'content-type', 'www-authenticate']) {
    const [mine, theirs] = [guarded, direct].map(({ answer }) => answer.headers.get(name)?.split(/[;,] ?/)[0])
    expect([name, mine]).toEqual([name, theirs])
  }
})

it.each(OTHERWISE)('the guard and the provider differ on %s', async (_, make, mine, theirs) => {
  expect((await send(`${issuer}/request`, make())).verdict).toBe(mine)
  expect((await send(provider.unguarded, make())).verdict).toBe(theirs)
})
