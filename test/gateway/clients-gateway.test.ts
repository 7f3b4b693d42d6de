import { webcrypto } from 'node:crypto'
import { type ApiClientConfig, Moneyhub } from '@mft/moneyhub-api-client'
import * as client6 from 'openid-client'
import * as client5 from 'openid-client5'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  BUSY_LIMIT,
  type GuardedProvider,
  REDIRECT_URI,
  SECRET,
  SIGNING_KEY,
  startGuardedProvider,
} from '../helpers/par-provider.ts'
import { until } from '../helpers/wait.ts'

/** An identifier of a connection, in the service's format. */
const CONNECTION = 'b74f1a79f0be8bdb857d82d0f041d7d2:a1d4e70e-bee9-4a91-84a6-23e2826023e5'
const PRIVATE_JWK = {
  ...SIGNING_KEY.privateKey.export({ format: 'jwk' }),
  kid: SIGNING_KEY.kid,
  alg: 'PS256',
}

describe.each([6, 9] as const)('through the gateway, with the tokens of oidc-provider %i,', (version) => {
  let provider: GuardedProvider
  beforeAll(async () => {
    provider = await startGuardedProvider(version)
  })
  afterAll(() => provider.close())

  describe('openid-client 6', () => {
    const discover = (id: string, authentication: client6.ClientAuth): Promise<client6.Configuration> =>
      client6.discovery(new URL(provider.issuer), id, undefined, authentication, {
        execute: [client6.allowInsecureRequests],
      })
    async function signing(): Promise<client6.PrivateKey> {
      const pkcs8 = SIGNING_KEY.privateKey.export({ type: 'pkcs8', format: 'der' })
      const algorithm = { name: 'RSA-PSS', hash: 'SHA-256' }
      const key = await webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign'])
      return { key, kid: SIGNING_KEY.kid }
    }

    it.each(['secret', 'keyed'])('calls the Data API with a new token for each call, as %s', async (id) => {
      const authentication =
        id === 'secret' ? client6.ClientSecretBasic(SECRET) : client6.PrivateKeyJwt(await signing())
      const config = await discover(id, authentication)
      const left: number[] = []
      for (let i = 0; i < 3; i++) {
        const { access_token: token } = await client6.clientCredentialsGrant(config, {
          scope: 'accounts:read',
        })
        const url = new URL(`${provider.api}/transactions?limit=${i}`)
        const answer = await client6.fetchProtectedResource(config, token, url, 'GET')
        expect(answer.status).toBe(200)
        expect(provider.called.at(-1)).toMatchObject({ method: 'GET', url: `/v3/transactions?limit=${i}` })
        left.push(Number(answer.headers.get('x-ratelimit-remaining')))
      }
      expect(left).toEqual([left[0], left[0]! - 1, left[0]! - 2])
    })
  })

  describe('openid-client 5', () => {
    it('calls the Data API with its token', async () => {
      const { Client } = await client5.Issuer.discover(provider.issuer)
      const client = new Client({ client_id: 'secret', client_secret: SECRET, response_types: ['code'] })
      const { access_token: token } = await client.grant({ grant_type: 'client_credentials' })
      const answer = await client.requestResource(`${provider.api}/transactions`, token!)
      expect(answer.statusCode).toBe(200)
      expect(Number(answer.headers['x-ratelimit-limit'])).toBe(1000)
      expect(answer.body?.toString()).toBe('{"data":[]}')
    })
  })

  describe('the service’s own client', () => {
    const connect = (client_id: string, settings: Partial<ApiClientConfig['client']> = {}) =>
      Moneyhub({
        identityServiceUrl: provider.issuer,
        resourceServerUrl: provider.api,
        client: {
          client_id,
          client_secret: SECRET,
          token_endpoint_auth_method: 'client_secret_basic',
          id_token_signed_response_alg: 'RS256',
          request_object_signing_alg: 'none',
          redirect_uri: REDIRECT_URI,
          response_type: 'code',
          keys: [],
          ...settings,
        },
      })
    const withKey: Partial<ApiClientConfig['client']> = {
      token_endpoint_auth_method: 'private_key_jwt',
      request_object_signing_alg: 'PS256',
      keys: [PRIVATE_JWK as never],
    }

    it.each([
      ['its secret', 'secret', undefined],
      ['its key', 'signing', withKey],
    ])('reads transactions and syncs a connection, by %s', async (_, id, settings) => {
      const moneyhub = await connect(id, settings)
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

    it('waits for Retry-After after a 429, and then succeeds', async () => {
      const moneyhub = await connect('busy')
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
})
