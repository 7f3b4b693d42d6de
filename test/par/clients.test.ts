import { webcrypto } from 'node:crypto'
import { type ApiClientConfig, Moneyhub } from '@mft/moneyhub-api-client'
import * as client6 from 'openid-client'
import * as client5 from 'openid-client5'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type GuardedProvider,
  REDIRECT_URI,
  SECRET,
  SIGNING_KEY,
  startGuardedProvider,
} from '../helpers/par-provider.ts'

const BANK = '1ffe704d39629a929c8e293880fb449a'
const SCOPE = `openid id:${BANK}`
const PARAMETERS = {
  scope: SCOPE,
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

describe.each([6, 9] as const)('before oidc-provider %i, the guard lets pass', (version) => {
  let provider: GuardedProvider
  let before: number
  beforeAll(async () => {
    provider = await startGuardedProvider(version)
  })
  afterAll(() => provider.close())

  /** One more request came to the provider. */
  const expectReachedOnce = (): void => expect(provider.reached()).toBe(before + 1)
  const count = (): void => {
    before = provider.reached()
  }

  describe('openid-client 6', () => {
    const discover = (id: string, authentication: client6.ClientAuth): Promise<client6.Configuration> =>
      client6.discovery(new URL(provider.issuer), id, undefined, authentication, {
        execute: [client6.allowInsecureRequests],
      })
    const key = async (): Promise<client6.PrivateKey> => {
      const pkcs8 = SIGNING_KEY.privateKey.export({ type: 'pkcs8', format: 'der' })
      const algorithm = { name: 'RSA-PSS', hash: 'SHA-256' }
      return {
        key: await webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']),
        kid: SIGNING_KEY.kid,
      }
    }
    const expectPushed = async (
      config: client6.Configuration,
      parameters: Record<string, string>,
    ): Promise<void> => {
      count()
      const url = await client6.buildAuthorizationUrlWithPAR(config, parameters)
      expect(url.searchParams.get('request_uri')).toMatch(URN)
      expectReachedOnce()
    }

    it('with Basic and plain parameters', async () => {
      await expectPushed(await discover('secret', client6.ClientSecretBasic(SECRET)), PARAMETERS)
    })

    it('with client_secret_post and claims', async () => {
      const config = await discover('secret', client6.ClientSecretPost(SECRET))
      await expectPushed(config, { ...PARAMETERS, claims: JSON.stringify(CLAIMS) })
    })

    it('with a client assertion and plain parameters', async () => {
      await expectPushed(await discover('keyed', client6.PrivateKeyJwt(await key())), PARAMETERS)
    })

    it.each(['keyed', 'signing'])(
      'with a client assertion and a signed request object, as %s',
      async (id) => {
        const config = await discover(id, client6.PrivateKeyJwt(await key()))
        const url = await client6.buildAuthorizationUrlWithJAR(config, PARAMETERS, await key())
        await expectPushed(config, Object.fromEntries(url.searchParams))
      },
    )

    it('and to the authorisation endpoint, what it pushed and no plain parameters of one with signing on', async () => {
      const config = await discover('signing', client6.PrivateKeyJwt(await key()))
      const sign = async () => client6.buildAuthorizationUrlWithJAR(config, PARAMETERS, await key())
      const signed = await sign()
      const url = await client6.buildAuthorizationUrlWithPAR(config, Object.fromEntries(signed.searchParams))
      const follow = (to: URL) => fetch(to, { redirect: 'manual', headers: { accept: BROWSER } })
      expect((await follow(url)).headers.get('location')).toMatch(/interaction/)
      const direct = await follow(client6.buildAuthorizationUrl(config, PARAMETERS))
      expect([direct.status, direct.headers.get('location')]).toEqual([400, null])
      expect(await direct.text()).toContain('must send a request object signed with PS256')
      expect((await follow(await sign())).headers.get('location')).toMatch(/interaction/)
    })

    it('but not plain parameters of a client with signing on', async () => {
      const config = await discover('signing', client6.PrivateKeyJwt(await key()))
      count()
      await expect(client6.buildAuthorizationUrlWithPAR(config, PARAMETERS)).rejects.toMatchObject({
        status: 400,
        error: 'invalid_request',
        error_description: expect.stringMatching(/request object signed with PS256/),
      })
      expect(provider.reached()).toBe(before)
    })

    it('and a wrong secret, which the provider itself refuses', async () => {
      const config = await discover('secret', client6.ClientSecretBasic('wrong'))
      count()
      const refused = client6.buildAuthorizationUrlWithPAR(config, PARAMETERS)
      await expect(refused).rejects.toMatchObject({ status: 401 })
      expectReachedOnce()
    })

    it('and claims with "true", which only the older generation accepts', async () => {
      const config = await discover('secret', client6.ClientSecretBasic(SECRET))
      count()
      const url = client6.buildAuthorizationUrlWithPAR(config, { ...PARAMETERS, claims: SEED_CLAIMS })
      if (version === 6) await url
      else await expect(url).rejects.toMatchObject({ error: 'invalid_request' })
      expectReachedOnce()
    })
  })

  describe('openid-client 5', () => {
    const discover = async (metadata: client5.ClientMetadata, signs = true): Promise<client5.BaseClient> => {
      const { Client } = await client5.Issuer.discover(provider.issuer)
      return new Client(
        { redirect_uris: [REDIRECT_URI], response_types: ['code'], ...metadata },
        signs ? { keys: [PRIVATE_JWK] as never } : undefined,
      )
    }
    const asKeyed = (id: string): Promise<client5.BaseClient> =>
      discover({
        client_id: id,
        token_endpoint_auth_method: 'private_key_jwt',
        request_object_signing_alg: 'PS256',
      })
    const asSecret = (): Promise<client5.BaseClient> =>
      discover({ client_id: 'secret', client_secret: SECRET, request_object_signing_alg: 'none' }, false)
    const expectPushed = async (
      client: client5.BaseClient,
      parameters: client5.AuthorizationParameters,
    ): Promise<void> => {
      count()
      const { request_uri: uri } = await client.pushedAuthorizationRequest(parameters)
      expect(uri).toMatch(URN)
      expectReachedOnce()
    }

    it('with Basic and plain parameters', async () => {
      await expectPushed(await asSecret(), { ...PARAMETERS, claims: CLAIMS })
    })

    it('with a client assertion and plain parameters', async () => {
      await expectPushed(await asKeyed('keyed'), PARAMETERS)
    })

    it.each(['keyed', 'signing'])(
      'with a client assertion and a signed request object, as %s',
      async (id) => {
        const client = await asKeyed(id)
        const request = await client.requestObject({ ...PARAMETERS, claims: CLAIMS })
        await expectPushed(client, { request })
      },
    )

    it('with Basic and an unsigned request object, which only the older generation accepts', async () => {
      const client = await asSecret()
      const request = await client.requestObject({ ...PARAMETERS, claims: CLAIMS })
      if (version === 6) await expectPushed(client, { request })
      else {
        count()
        await expect(client.pushedAuthorizationRequest({ request })).rejects.toMatchObject({
          error: 'invalid_request_object',
        })
        expectReachedOnce()
      }
    })
  })

  describe('the service’s own client', () => {
    type Settings = Partial<ApiClientConfig['client']>
    const connect = (settings: Settings) =>
      Moneyhub({
        identityServiceUrl: provider.issuer,
        resourceServerUrl: 'http://127.0.0.1:1',
        client: {
          client_id: 'keyed',
          client_secret: SECRET,
          token_endpoint_auth_method: 'private_key_jwt',
          id_token_signed_response_alg: 'RS256',
          request_object_signing_alg: 'PS256',
          redirect_uri: REDIRECT_URI,
          response_type: 'code',
          keys: [PRIVATE_JWK as never],
          ...settings,
        },
      })
    const pushed = async (settings: Settings): Promise<string> => {
      const moneyhub = await connect(settings)
      count()
      return moneyhub.getPushedAuthorisationRequestUrl({
        bankId: BANK,
        state: 'a state',
        nonce: 'n',
        userId: 'user-1',
        permissions: ['ReadBalances'],
      })
    }
    const none: Settings = { request_object_signing_alg: 'none' }

    it.each(['keyed', 'signing'])(
      'with an assertion for two audiences and a signed object, as %s',
      async (id) => {
        const url = new URL(await pushed({ client_id: id }))
        expect(url.searchParams.get('request_uri')).toMatch(URN)
        expectReachedOnce()
      },
    )

    it('with Basic and an unsigned object, which only the older generation accepts', async () => {
      const url = pushed({ ...none, client_id: 'secret', token_endpoint_auth_method: 'client_secret_basic' })
      if (version === 6) expect(new URL(await url).searchParams.get('request_uri')).toMatch(URN)
      else await expect(url).rejects.toMatchObject({ error: 'invalid_request_object' })
      expectReachedOnce()
    })

    it('but not an unsigned object of a client with signing on', async () => {
      await expect(pushed({ ...none, client_id: 'signing' })).rejects.toMatchObject({
        error: 'invalid_request_object',
        error_description: expect.stringMatching(/signed with PS256/),
      })
      expect(provider.reached()).toBe(before)
    })
  })
})
