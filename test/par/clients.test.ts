import { webcrypto } from 'node:crypto'
import { type ApiClientConfig, Moneyhub } from '@mft/moneyhub-api-client'
import * as client6 from 'openid-client'
import * as client5 from 'openid-client5'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  BUSY_LIMIT,
  type GuardedProvider,
  REDIRECT_URI,
  SECRET,
  SIGNING_KEY,
  startGuardedProvider,
} from '../helpers/par-provider.ts'
import { until } from '../helpers/wait.ts'

/** Published clients push to real providers through the gateway, and call the Data API with the tokens that they get. */

const BANK = '1ffe704d39629a929c8e293880fb449a'
/** An identifier of a connection, in the service's format. */
const CONNECTION = 'b74f1a79f0be8bdb857d82d0f041d7d2:a1d4e70e-bee9-4a91-84a6-23e2826023e5'
const PARAMETERS = {
  scope: `openid id:${BANK}`,
  redirect_uri: REDIRECT_URI,
  response_type: 'code',
  state: 'a state',
  nonce: 'n',
}
const CLAIMS = { id_token: { sub: { essential: true }, 'mh:con_id': { essential: true } } }
/** Requests as in the documentation of the service. */
const SEED_CLAIMS = '{"id_token":{"sub":"true","mh:con_id":"true"}}'
/** The `Accept` of a browser. */
const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
const URN = /^urn:ietf:params:oauth:request_uri:/
const PRIVATE_JWK = {
  ...SIGNING_KEY.privateKey.export({ format: 'jwk' }),
  kid: SIGNING_KEY.kid,
  alg: 'PS256',
}

describe.each([6, 9] as const)('before oidc-provider %i', (version) => {
  let provider: GuardedProvider
  let key: client6.PrivateKey
  beforeAll(async () => {
    provider = await startGuardedProvider(version)
    const pkcs8 = SIGNING_KEY.privateKey.export({ type: 'pkcs8', format: 'der' })
    const algorithm = { name: 'RSA-PSS', hash: 'SHA-256' }
    key = {
      key: await webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']),
      kid: SIGNING_KEY.kid,
    }
  })

  /** Finds the provider as openid-client 6; authenticates by Basic as `secret`, and by key as any other client. */
  const discover = (id: string, authentication?: client6.ClientAuth): Promise<client6.Configuration> =>
    client6.discovery(
      new URL(provider.issuer),
      id,
      undefined,
      authentication ?? (id === 'secret' ? client6.ClientSecretBasic(SECRET) : client6.PrivateKeyJwt(key)),
      { execute: [client6.allowInsecureRequests] },
    )
  const push6 = async (config: client6.Configuration, parameters: Record<string, string> = PARAMETERS) =>
    (await client6.buildAuthorizationUrlWithPAR(config, parameters)).searchParams.get('request_uri')
  async function pushSigned6(id: string) {
    const config = await discover(id)
    const { searchParams } = await client6.buildAuthorizationUrlWithJAR(config, PARAMETERS, key)
    return await push6(config, Object.fromEntries(searchParams))
  }

  async function as5(id: string): Promise<client5.BaseClient> {
    const { Client } = await client5.Issuer.discover(provider.issuer)
    const common = { client_id: id, redirect_uris: [REDIRECT_URI], response_types: ['code' as const] }
    return id === 'secret'
      ? new Client({ ...common, client_secret: SECRET, request_object_signing_alg: 'none' })
      : new Client(
          { ...common, token_endpoint_auth_method: 'private_key_jwt', request_object_signing_alg: 'PS256' },
          { keys: [PRIVATE_JWK] },
        )
  }
  const push5 = async (client: client5.BaseClient, parameters: client5.AuthorizationParameters) =>
    (await client.pushedAuthorizationRequest(parameters)).request_uri
  async function pushObject5(id: string) {
    const client = await as5(id)
    return await push5(client, { request: await client.requestObject({ ...PARAMETERS, claims: CLAIMS }) })
  }

  /** The service's own client; authenticates by Basic as `secret` and `busy`, and by key as any other client. */
  const serviceClient = (id: string, settings: Partial<ApiClientConfig['client']> = {}) =>
    Moneyhub({
      identityServiceUrl: provider.issuer,
      resourceServerUrl: provider.api,
      client: {
        client_id: id,
        client_secret: SECRET,
        id_token_signed_response_alg: 'RS256',
        redirect_uri: REDIRECT_URI,
        response_type: 'code',
        ...(id === 'secret' || id === 'busy'
          ? {
              token_endpoint_auth_method: 'client_secret_basic',
              request_object_signing_alg: 'none',
              keys: [],
            }
          : {
              token_endpoint_auth_method: 'private_key_jwt',
              request_object_signing_alg: 'PS256',
              keys: [PRIVATE_JWK as never],
            }),
        ...settings,
      },
    })
  async function pushAsService(...client: Parameters<typeof serviceClient>) {
    const { getPushedAuthorisationRequestUrl } = await serviceClient(...client)
    const user = { bankId: BANK, userId: 'user-1', permissions: ['ReadBalances'] }
    const url = await getPushedAuthorisationRequestUrl({ ...user, state: 'a state', nonce: 'n' })
    return new URL(url).searchParams.get('request_uri')
  }

  const PASS: readonly (readonly [what: string, push: () => Promise<unknown>])[] = [
    ['Basic and plain parameters of openid-client 6', async () => push6(await discover('secret'))],
    [
      'client_secret_post and claims of openid-client 6',
      async () => {
        const config = await discover('secret', client6.ClientSecretPost(SECRET))
        return await push6(config, { ...PARAMETERS, claims: JSON.stringify(CLAIMS) })
      },
    ],
    ['an assertion and plain parameters of openid-client 6', async () => push6(await discover('keyed'))],
    ['an assertion and a signed object of openid-client 6, as keyed', () => pushSigned6('keyed')],
    ['an assertion and a signed object of openid-client 6, as signing', () => pushSigned6('signing')],
    [
      'Basic and plain parameters of openid-client 5',
      async () => push5(await as5('secret'), { ...PARAMETERS, claims: CLAIMS }),
    ],
    [
      'an assertion and plain parameters of openid-client 5',
      async () => push5(await as5('keyed'), PARAMETERS),
    ],
    ['an assertion and a signed object of openid-client 5, as keyed', () => pushObject5('keyed')],
    ['an assertion and a signed object of openid-client 5, as signing', () => pushObject5('signing')],
    [
      'an assertion for two audiences and a signed object of the service’s client, as keyed',
      () => pushAsService('keyed'),
    ],
    [
      'an assertion for two audiences and a signed object of the service’s client, as signing',
      () => pushAsService('signing'),
    ],
  ]
  const PASS_THE_GUARD: readonly (readonly [what: string, push: () => Promise<unknown>, refusal: object])[] =
    [
      [
        'claims with "true"',
        async () => push6(await discover('secret'), { ...PARAMETERS, claims: SEED_CLAIMS }),
        { error: 'invalid_request' },
      ],
      [
        'Basic and an unsigned object of openid-client 5',
        () => pushObject5('secret'),
        { error: 'invalid_request_object' },
      ],
      [
        'Basic and an unsigned object of the service’s client',
        () => pushAsService('secret'),
        { error: 'invalid_request_object' },
      ],
    ]
  async function expectReached(times: number, act: () => Promise<unknown>): Promise<void> {
    const before = provider.reached()
    await act()
    expect(provider.reached()).toBe(before + times)
  }

  it.each(PASS)('the guard and the provider accept %s', (_, push) =>
    expectReached(1, async () => expect(await push()).toMatch(URN)),
  )

  it.each(PASS_THE_GUARD)('the guard accepts, as does the older provider, %s', (_, push, refusal) =>
    expectReached(1, async () => {
      if (version === 6) expect(await push()).toMatch(URN)
      else await expect(push()).rejects.toMatchObject(refusal)
    }),
  )

  it('the authorisation endpoint accepts what a client with signing on pushed or signed, and no plain parameters of it', async () => {
    const config = await discover('signing')
    const sign = async () => client6.buildAuthorizationUrlWithJAR(config, PARAMETERS, key)
    const signed = Object.fromEntries((await sign()).searchParams)
    const follow = (to: URL) => fetch(to, { redirect: 'manual', headers: { accept: BROWSER } })
    for (const url of [await client6.buildAuthorizationUrlWithPAR(config, signed), await sign()])
      expect((await follow(url)).headers.get('location')).toMatch(/interaction/)
    const direct = await follow(client6.buildAuthorizationUrl(config, PARAMETERS))
    expect([direct.status, direct.headers.get('location')]).toEqual([400, null])
    expect(await direct.text()).toContain('must send a request object signed with PS256')
  })

  it.each(['secret', 'keyed'])(
    'openid-client 6 calls the Data API with a new token for each call, as %s',
    async (id) => {
      const config = await discover(id)
      const left: number[] = []
      for (let i = 0; i < 3; i++) {
        const scope = 'accounts:read'
        const { access_token: token } = await client6.clientCredentialsGrant(config, { scope })
        const url = new URL(`${provider.api}/transactions?limit=${i}`)
        const answer = await client6.fetchProtectedResource(config, token, url, 'GET')
        expect(answer.status).toBe(200)
        expect(provider.called.at(-1)).toMatchObject({ method: 'GET', url: `/v3/transactions?limit=${i}` })
        left.push(Number(answer.headers.get('x-ratelimit-remaining')))
      }
      expect(left).toEqual([left[0], left[0]! - 1, left[0]! - 2])
    },
  )

  it('openid-client 5 calls the Data API with its token', async () => {
    const client = await as5('secret')
    const { access_token: token } = await client.grant({ grant_type: 'client_credentials' })
    const answer = await client.requestResource(`${provider.api}/transactions`, token!)
    expect(answer.statusCode).toBe(200)
    expect(Number(answer.headers['x-ratelimit-limit'])).toBe(1000)
    expect(answer.body?.toString()).toBe('{"data":[]}')
  })

  it.each([
    ['its secret', 'secret'],
    ['its key', 'signing'],
  ])('the service’s client reads transactions and syncs a connection, by %s', async (_, id) => {
    const moneyhub = await serviceClient(id)
    expect(await moneyhub.getTransactions({ userId: 'user-1', params: { limit: 2 } })).toEqual({ data: [] })
    expect(provider.called.at(-1)).toMatchObject({ method: 'GET', url: '/v3/transactions?limit=2' })
    const sync = () => moneyhub.syncUserConnection({ userId: 'user-1', connectionId: CONNECTION })
    await sync()
    expect(provider.called.at(-1)).toMatchObject({ method: 'POST', url: `/v3/sync/${CONNECTION}` })
    const before = provider.called.length
    await expect(sync()).rejects.toMatchObject({
      error: 'TooManyRequests',
      error_description: 'Too Many Requests',
      response: { statusCode: 429, headers: { 'retry-after': expect.stringMatching(/^[1-5]$/) } },
    })
    expect(provider.called).toHaveLength(before)
  })

  it('the service’s client waits for Retry-After after a 429, and then succeeds', async () => {
    const moneyhub = await serviceClient('busy')
    const read = () => moneyhub.getTransactions({ userId: 'user-1' })
    const refused = await provider.refused()
    let startedAt = 0
    // If the tokens took too long, the calls do not exceed the limit.
    await until('a call is refused', async () => {
      const before = provider.called.length
      startedAt = performance.now()
      const calls = await Promise.all(Array.from({ length: BUSY_LIMIT + 1 }, read))
      expect(calls).toEqual(calls.map(() => ({ data: [] })))
      expect(provider.called).toHaveLength(before + BUSY_LIMIT + 1)
      return (await provider.refused()) > refused
    })
    expect(performance.now() - startedAt).toBeGreaterThan(1000)
  })
})
