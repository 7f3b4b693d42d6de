import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from 'jose'
import { describe, expect, it } from 'vitest'
import type { Identity } from '../../../src/authenticate/token/claims.ts'
import { Refusal } from '../../../src/errors.ts'
import { startIssuer } from '../../helpers/issuer.ts'
import { createForgeries, mallory } from './forgeries.ts'
import { createServing, keysOf, trust } from '../../helpers/trust.ts'
import { startUpstream } from '../../helpers/upstream.ts'

const ALGORITHMS = ['PS256', 'ES256', 'EdDSA', 'RS256']
const issuer = await startIssuer()
const keys = await keysOf(issuer, { cooldownMs: 600_000 })
const trap = await startUpstream((_, response) => response.end(JSON.stringify({ keys: [mallory.jwk] })))
const trapUrl = `${trap.url}/jwks`
const forgeries = createForgeries(issuer, trapUrl)
const { forged: FORGED, notAccess: NOT_ACCESS, withoutAudience: WITHOUT_AUDIENCE, claims, signed } = forgeries

async function verdict(token: string, type: 'any' | 'strict' = 'any', audienceOptional = false) {
  return createServing(trust(issuer, keys, { type, audienceOptional }))([`Bearer ${token}`])
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

const now = (): number => Math.floor(Date.now() / 1000)

function expectRefused(refusal: Identity | Refusal, token: string): void {
  expect(refusal).toBeInstanceOf(Refusal)
  const { status, headers, message, cause, oauthError } = refusal as Refusal
  expect(status).toBe(401)
  expect(oauthError).toBe('invalid_token')
  expect(headers['WWW-Authenticate']).toMatch(
    /^Bearer realm="test", error="invalid_token", error_description="[ !#-[\]-~]+"$/,
  )
  for (const part of token.split('.').filter((part) => part.length > 8)) {
    expect(`${message} ${String(cause)} ${JSON.stringify(headers)}`).not.toContain(part)
  }
}

describe('tokens that are not access tokens of the issuer', () => {
  it.each(Object.keys(FORGED))('refuses %s, as jose does', async (name) => {
    const token = FORGED[name]!()
    expect(await joseTakes(token)).toBe(false)
    expectRefused(await verdict(token), token)
    expectRefused(await verdict(token, 'strict'), token)
    if (WITHOUT_AUDIENCE.includes(name))
      expect(await verdict(token, 'any', true)).toMatchObject({ client: 'client-1' })
    else expectRefused(await verdict(token, 'any', true), token)
  })

  it.each(Object.keys(NOT_ACCESS))('refuses %s, which jose accepts', async (name) => {
    const token = NOT_ACCESS[name]!()
    expect(await joseTakes(token)).toBe(true)
    expectRefused(await verdict(token), token)
    expectRefused(await verdict(token, 'strict'), token)
    expectRefused(await verdict(token, 'any', true), token)
  })

  it('says in the log by what a token is of another kind, and no secret of it', async () => {
    const causes = async (name: string) => ((await verdict(NOT_ACCESS[name]!())) as Refusal).cause
    expect(await causes('Cognito’s ID token')).toBe('accepted token_use: access; of the token: "id"')
    expect(await causes('Keycloak’s refresh token')).toBe(
      'the claim typ names another kind; of the token: "Refresh"',
    )
    expect(await causes('an authorisation response')).toBe(
      'the token has the claim code, as other kinds of token do',
    )
    expect(await causes('a DPoP proof')).toBe('accepted typ: at+jwt, jwt; of the token: "dpop+jwt"')
  })

  it('fetches no URL in a token', () => {
    expect(trap.seen).toEqual([])
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
    'issued ahead within the leeway': () => issuer.token({ iat: now() + 4 }),
    'of an issuer that writes the long typ': () =>
      issuer.token({}, { header: { typ: 'application/at+jwt' } }),
    'of an issuer that writes AT+JWT': () => issuer.token({}, { header: { typ: 'AT+JWT' } }),
    'without kid': () => issuer.token({}, { header: { kid: undefined } }),
    'that carry keys which are ignored': () =>
      issuer.token({}, { header: { jku: trapUrl, jwk: mallory.jwk } }),
    'with a nonce, being typed': () => issuer.token({ nonce: 'n' }),
    'longer than 16 kB': () => issuer.token({ scope: 'a'.repeat(20_000) }),
    'with members that are null': () => issuer.token({ sub: null, nonce: null, cnf: null, events: null }),
    'with the token_use of Cognito': () => issuer.token({ token_use: 'access' }),
    'with the typ of Keycloak': () => issuer.token({ typ: 'Bearer', sub: 'u' }),
    'with claims of their own that are named like those of other kinds': () =>
      issuer.token({ typ: 'user', type: 'machine', token_type: 'Bearer', code: 'NL', sub: 'u' }),
    'with a claim twice: the last counts': () =>
      signed(Buffer.from(JSON.stringify(claims()).replace('{', '{"client_id":"first",'))),
  }
  it.each(Object.keys(takes))('accepts those %s, as jose does', async (name) => {
    const token = takes[name]!()
    expect(await joseTakes(token)).toBe(true)
    expect(await verdict(token)).toMatchObject({ client: 'client-1' })
    expect(await verdict(token, 'strict')).toMatchObject({ client: 'client-1' })
  })

  it.each(['Bearer', 'bearer', 'DPoP'])(
    'accepts the nonce of Keycloak before 25, whose claim typ is %s',
    async (typ) => {
      const token = issuer.token({ typ, nonce: 'n', sub: 'u' }, { header: { typ: 'JWT' } })
      expect(await verdict(token)).toMatchObject({ client: 'client-1' })
    },
  )

  it.each([
    ['', undefined],
    [null, undefined],
    [7, '7'],
    ['7', '7'],
    [-(2 ** 53) + 1, '-9007199254740991'],
  ])('reads the sub %j as the user %j', async (sub, user) => {
    const identity = (await verdict(issuer.token({ sub }))) as Identity
    expect([identity.client, identity.user]).toEqual(['client-1', user])
  })

  it('says in the log which claim a token lacks, and where its client may be', async () => {
    const cause = async (claims: Record<string, unknown>, options = {}) =>
      ((await verdict(issuer.token(claims, options))) as Refusal).cause
    expect(await cause({ client_id: undefined, azp: 'app', cid: 'app' })).toBe(
      'accepted client_id: 1 to 255 printable characters; of the token: none; it has azp, cid: set tokens.clientClaim',
    )
    expect(await cause({ client_id: 7 })).toBe(
      'accepted client_id: 1 to 255 printable characters; of the token: 7',
    )
    expect(await cause({ cnf: { kid: 'a', jkt: 'x' } })).toBe(
      'accepted cnf: jkt, x5t#S256; of the token: ["kid","jkt"]',
    )
    expect(await cause({ sub: 7.5 })).toMatch(/^accepted sub: /)
    expect(await cause({}, { header: { alg: 'RS512' } })).toBe(
      `accepted alg: ${ALGORITHMS.join(', ')}; of the token: "RS512"`,
    )
    expect(await cause({ exp: undefined })).toBe('accepted exp: seconds since 1970; of the token: none')
  })

  it.each([undefined, 'JWT', 'jwt', 'application/jwt'])('accepts typ %s unless strict', async (typ) => {
    const token = issuer.token({}, { header: { typ } })
    expect(await verdict(token)).toMatchObject({ client: 'client-1' })
    expectRefused(await verdict(token, 'strict'), token)
  })
})
