import { generateKeyPairSync } from 'node:crypto'
import { createServer } from 'node:http'
import type * as OidcProvider from 'oidc-provider'
import * as client from 'openid-client'
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { createVerifyProof, originOf } from '../../../src/authenticate/proof/dpop.ts'
import { createIntrospection } from '../../../src/authenticate/token/introspection.ts'
import { createKeySource } from '../../../src/authenticate/token/jwks.ts'
import { Refusal } from '../../../src/errors.ts'
import { closeLater } from '../../helpers/closing.ts'
import { listenLocally } from '../../helpers/local-server.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { createServing, trust } from '../../helpers/trust.ts'

const AUDIENCE = 'https://api.example.com'
const GATEWAY = { id: 'the gateway', secret: 'a secret: with/some %signs' }
const PARTY = { id: 'party', secret: 'its-secret' }
/** Its tokens are bound to its certificate. */
const HOLDER = { id: 'holder', secret: 'its-secret' }
/** Its tokens have no resource, so their introspection responses have no audience. */
const PLAIN = { id: 'plain', secret: 'its-secret' }
const certificate = makeCertificate('holder')
/** A real OpenID Provider whose access tokens are opaque, or JWTs if the resource requests them. */
function makeProvider({ Provider }: typeof OidcProvider, issuer: string): OidcProvider.Provider {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return new Provider(issuer, {
    clients: [GATEWAY, PARTY, HOLDER, PLAIN].map(({ id, secret }) => ({
      client_id: id,
      client_secret: secret,
      grant_types: ['client_credentials'],
      response_types: [],
      redirect_uris: [],
      tls_client_certificate_bound_access_tokens: id === HOLDER.id,
    })),
    jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: '1', use: 'sig' }] },
    cookies: { keys: ['a key of these tests'] },
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      mTLS: {
        enabled: true,
        certificateBoundAccessTokens: true,
        getCertificate: (ctx) => ctx.get('x-test-certificate') && certificate.cert,
      },
      resourceIndicators: {
        enabled: true,
        defaultResource: (_, { clientId }) => (clientId === PLAIN.id ? [] : AUDIENCE),
        getResourceServerInfo: (_, resource) => ({
          scope: 'accounts:read',
          audience: resource.replace('/jwt', ''),
          accessTokenTTL: 300,
          accessTokenFormat: resource.endsWith('/jwt') ? 'jwt' : 'opaque',
          jwt: { sign: { alg: 'ES256' } },
        }),
      },
    },
  })
}

for (const level of ['info', 'warn'] as const) vi.spyOn(console, level).mockImplementation(() => {})
afterAll(() => void vi.restoreAllMocks())
let answer: ReturnType<OidcProvider.Provider['callback']> | undefined
const { url: issuer } = await listenLocally(
  createServer((request, response) => void answer?.(request, response)),
)
const provider = makeProvider(await import('oidc-provider'), issuer)
answer = provider.callback()
const keys = createKeySource({ issuer, events: { onDown() {}, onUp() {} } })
closeLater(() => keys.close())
const events: string[] = []
const authenticate = createServing(
  trust({ issuer, audience: AUDIENCE }, keys, {
    algorithms: ['ES256'],
    type: 'strict',
    introspect: introspection(GATEWAY.secret),
  }),
  createVerifyProof(['127.0.0.1']),
)
const api = createServer((request, response) => {
  const { authorization } = request.headers
  const path = request.url!.split('?')[0]!
  const proofs = [request.headers['dpop'] ?? []].flat()
  const shown = () => (request.headers['x-test-certificate'] ? certificate.der : undefined)
  const answered = authenticate(authorization === undefined ? [] : [authorization], () => ({
    ...originOf(request, false),
    method: request.method!,
    path,
    proofs,
    certificate: shown,
  }))
  void Promise.resolve(answered).then((answer) => {
    const refused = answer instanceof Refusal
    const headers = refused ? Object.entries(answer.headers).flat(1) : []
    response.writeHead(refused ? answer.status : 200, headers as string[])
    response.end(JSON.stringify(refused ? { message: answer.message } : answer))
  })
})
const url = `${(await listenLocally(api)).url}/v3/transactions?from=today`
const config = await client.discovery(new URL(issuer), PARTY.id, PARTY.secret, client.ClientSecretBasic(), {
  execute: [client.allowInsecureRequests],
})

function introspection(clientSecret: string) {
  return createIntrospection({
    url: `${issuer}/token/introspection`,
    clientId: GATEWAY.id,
    clientSecret,
    issuer,
    audience: [AUDIENCE],
    clientClaim: 'client_id',
    leewayMs: 5000,
    maxAgeMs: 20_000,
    events: { onDown: ({ message: reason }) => events.push(reason), onUp() {} },
  })
}

const grant = (parameters: Record<string, string> = {}) =>
  client.clientCredentialsGrant(config, { scope: 'accounts:read', resource: AUDIENCE, ...parameters })
const call = async (headers: Record<string, string>) => {
  const response = await fetch(url, { headers })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

describe('the tokens of a real provider', () => {
  it('the tokens of a real provider are accepted as opaque tokens', async () => {
    const { access_token: token } = await grant()
    expect(token).not.toContain('.')
    expect(await call({ authorization: `Bearer ${token}` })).toMatchObject({
      status: 200,
      body: { client: 'party', scope: 'accounts:read' },
    })
  })

  it('the tokens of a real provider are accepted as JWTs, without introspection', async () => {
    const { access_token: token } = await grant({ resource: `${AUDIENCE}/jwt` })
    expect(token.split('.')).toHaveLength(3)
    expect(await call({ authorization: `Bearer ${token}` })).toMatchObject({
      status: 200,
      body: { client: 'party' },
    })
    expect(await introspection(GATEWAY.secret)(token)).toMatchObject({
      description: 'The access token is not active.',
    })
    expect(events).toEqual([])
  })

  it('the tokens of a real provider are accepted without a resource, except refresh tokens', async () => {
    const response = await fetch(`${issuer}/token`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${PLAIN.id}:${PLAIN.secret}`)}` },
      body: new URLSearchParams({ grant_type: 'client_credentials' }),
    })
    const { access_token: token } = (await response.json()) as { access_token: string }
    expect(await call({ authorization: `Bearer ${token}` })).toMatchObject({
      status: 200,
      body: { client: 'plain' },
    })
    const oidcClient = (await provider.Client.find(PLAIN.id))!
    const grantId = await new provider.Grant({ accountId: 'user', clientId: PLAIN.id }).save()
    const refresh = await new provider.RefreshToken({
      ...{ accountId: 'user', client: oidcClient, grantId, gty: 'authorization_code', scope: 'openid' },
    }).save()
    expect(await call({ authorization: `Bearer ${refresh}` })).toMatchObject({
      status: 401,
      body: { message: 'The token is not an access token.' },
    })
  })

  it('the tokens of a real provider are refused if they are for another API, or forged', async () => {
    const { access_token: token } = await grant({ resource: 'https://other.example.com' })
    for (const one of [token, 'made-up', token.slice(1)]) {
      expect((await call({ authorization: `Bearer ${one}` })).status).toBe(401)
    }
  })

  it('the tokens of a real provider are refused once they are revoked, as soon as the cached answer expires', async () => {
    const { access_token: token } = await grant()
    const authorization = `Bearer ${token}`
    expect((await call({ authorization })).status).toBe(200)
    await client.tokenRevocation(config, token)
    onTestFinished(() => void vi.useRealTimers())
    vi.setSystemTime(Date.now() + 19_000)
    expect((await call({ authorization })).status).toBe(200)
    vi.setSystemTime(Date.now() + 2000)
    expect((await call({ authorization })).status).toBe(401)
  })

  it('the tokens of a real provider cannot be introspected with a wrong secret: a 503, not a refusal', async () => {
    const { access_token: token } = await grant()
    expect(await introspection('wrong')(token)).toMatchObject({
      error: 'unavailable',
      cause: { message: expect.stringContaining('answered 401') },
    })
  })

  it.each(['', '/jwt'])(
    'the tokens of a real provider are accepted from openid-client with DPoP, and only so (%j)',
    async (format) => {
      const proof = client.getDPoPHandle(config, await client.randomDPoPKeyPair('ES256'))
      const parameters = { scope: 'accounts:read', resource: AUDIENCE + format }
      const { access_token: token } = await client.clientCredentialsGrant(config, parameters, { DPoP: proof })
      const fetchWith = (DPoP: client.DPoPHandle, method = 'GET') =>
        client.fetchProtectedResource(config, token, new URL(url), method, null, undefined, { DPoP })
      for (const method of ['GET', 'POST', 'GET']) {
        const response = await fetchWith(proof, method)
        expect(response.status).toBe(200)
        expect(await response.json()).toMatchObject({ client: 'party' })
      }
      expect((await call({ authorization: `Bearer ${token}` })).status).toBe(401)
      expect((await call({ authorization: `DPoP ${token}` })).status).toBe(401)
      const thief = client.getDPoPHandle(config, await client.randomDPoPKeyPair('ES256'))
      await expect(fetchWith(thief)).rejects.toMatchObject({
        cause: [{ scheme: 'dpop', parameters: { error: 'invalid_token' } }],
      })
    },
  )

  it.each(['', '/jwt'])(
    'the tokens of a real provider are taken with the certificate that they are bound to, and only so (%j)',
    async (format) => {
      const response = await fetch(`${issuer}/token`, {
        method: 'POST',
        headers: {
          authorization: `Basic ${Buffer.from(`${HOLDER.id}:${HOLDER.secret}`).toString('base64')}`,
          'x-test-certificate': 'yes',
        },
        body: new URLSearchParams({
          grant_type: 'client_credentials',
          scope: 'accounts:read',
          resource: AUDIENCE + format,
        }),
      })
      const { access_token: token } = (await response.json()) as { access_token: string }
      const authorization = `Bearer ${token}`
      expect(await call({ authorization, 'x-test-certificate': 'yes' })).toMatchObject({
        status: 200,
        body: { client: 'holder', confirmation: { x5t: certificate.thumbprint } },
      })
      expect((await call({ authorization })).status).toBe(401)
    },
  )
})
