import { createServer } from 'node:http'
import type Provider from 'oidc-provider'
import type { ClientMetadata } from 'oidc-provider'
import { vi } from 'vitest'
import { AUDIENCE, call, startGateway } from './gateway.ts'
import { makeKey } from './issuer.ts'
import { listenLocally } from './local-server.ts'
import { freePort } from './ports.ts'
import { type Seen, startUpstream } from './upstream.ts'

export const REDIRECT_URI = 'https://client.example.com/callback'
export const SECRET = 'a secret: with/some %signs + more'
export const SIGNING_KEY = makeKey('PS256')
/** The limit of the client `busy`, per second. */
export const BUSY_LIMIT = 2

/** A real OpenID Provider and a Data API, behind a running gateway that guards the PAR endpoint. */
export interface GuardedProvider {
  /** The issuer, which is a URL of the gateway. */
  readonly issuer: string
  /** The URL of the Data API at the gateway. */
  readonly api: string
  /** The PAR endpoint without the guard, under the same name. */
  readonly unguarded: string
  /** Number of pushed requests that the guard forwarded to the provider. */
  reached(): number
  /** Requests to the Data API. */
  readonly called: readonly Seen[]
  /** Number of calls that the gateway answered with 429. */
  refused(): Promise<number>
}

const PAST = '/past-the-guard'

const authenticated = {
  grant_types: ['authorization_code', 'client_credentials'],
  response_types: ['code' as const],
  redirect_uris: [REDIRECT_URI],
}
const keyed = {
  ...authenticated,
  token_endpoint_auth_method: 'private_key_jwt' as const,
  jwks: { keys: [SIGNING_KEY.jwk] },
}
const CLIENTS: ClientMetadata[] = [
  { ...keyed, client_id: 'signing', request_object_signing_alg: 'PS256' },
  { ...keyed, client_id: 'keyed' },
  { ...authenticated, client_id: 'secret', client_secret: SECRET },
  { ...authenticated, client_id: 'busy', client_secret: SECRET },
]

/** The `clients` of the gateway's configuration. */
const SETTINGS = [
  { id: 'signing', authentication: 'private_key_jwt', requestObjectSigningAlg: 'PS256', jwks: keyed.jwks },
  { id: 'keyed', authentication: 'private_key_jwt', requestObjectSigningAlg: 'none', jwks: keyed.jwks },
  { id: 'secret', authentication: 'client_secret_basic', requestObjectSigningAlg: 'none' },
  { id: 'busy', limits: { requests: { limit: BUSY_LIMIT, window: '1s' } } },
]

const ROUTES = [
  { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
  { match: 'GET,POST /oidc/auth', upstream: 'identity', authenticate: 'authorization' },
  { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
  { match: `${PAST}/*`, upstream: 'identity', authenticate: 'none' },
  {
    match: 'POST /:version/sync/:connection',
    upstream: 'data',
    authenticate: 'bearer',
    limits: ['requests', 'sync'],
  },
  { match: '/v3/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]

const SHARED_FEATURES = {
  devInteractions: { enabled: false },
  claimsParameter: { enabled: true },
  clientCredentials: { enabled: true },
  pushedAuthorizationRequests: { enabled: true },
}
const RESOURCES = {
  resourceIndicators: {
    enabled: true,
    defaultResource: () => AUDIENCE,
    getResourceServerInfo: () => ({
      scope: 'accounts:read transactions:read:all',
      audience: AUDIENCE,
      accessTokenFormat: 'jwt' as const,
      accessTokenTTL: 600,
      jwt: { sign: { alg: 'RS256' as const } },
    }),
  },
}
const COMMON = {
  clients: CLIENTS,
  routes: { authorization: '/auth', token: '/token', pushed_authorization_request: '/request' },
  pkce: { required: () => false },
  ttl: { ClientCredentials: 600 },
}
type Answer = ReturnType<Provider['callback']>
const VERSIONS = {
  6: async (issuer: string): Promise<Answer> => {
    const { callback } = new (await import('oidc-provider6')).default(issuer, {
      ...COMMON,
      scopes: ['openid', 'accounts:read', 'transactions:read:all'],
      formats: { AccessToken: 'jwt-ietf', ClientCredentials: 'jwt-ietf' },
      audiences: () => [AUDIENCE],
      pkce: { ...COMMON.pkce, methods: ['S256'] },
      whitelistedJWA: { requestObjectSigningAlgValues: ['none', 'PS256', 'RS256'] },
      features: {
        ...SHARED_FEATURES,
        ietfJWTAccessTokenProfile: { enabled: true },
        requestObjects: { request: true },
      },
    })
    return callback
  },
  9: async (issuer: string): Promise<Answer> =>
    new (await import('oidc-provider')).default(issuer, {
      ...COMMON,
      features: { ...SHARED_FEATURES, ...RESOURCES, requestObjects: { enabled: true } },
    }).callback(),
}

/** Starts a provider of one major version. Its issuer is the address of the gateway in front of it. */
export async function startGuardedProvider(version: 6 | 9): Promise<GuardedProvider> {
  const port = await freePort()
  const base = `http://127.0.0.1:${port}`
  const issuer = `${base}/oidc`
  const answer = await quietly(() => VERSIONS[version](issuer))
  let reached = 0
  const provider = createServer((request, response) => {
    const url = request.url ?? '/'
    if (url === '/oidc/request') reached++
    const originalUrl = url.replace(PAST, '')
    Object.assign(request, { originalUrl, url: originalUrl.replace(/^\/oidc/, '') })
    void answer(request, response)
  })
  const { url: identity } = await listenLocally(provider)
  const data = await startUpstream()
  const gateway = await startGateway({
    port,
    data: data.url,
    identity,
    routes: ROUTES,
    tokens: { issuer, audience: AUDIENCE, jwks: `${identity}/oidc/jwks` },
    more: { par: { issuer }, clients: SETTINGS },
  })

  return {
    issuer,
    api: `${base}/v3`,
    unguarded: `${base}${PAST}/oidc/request`,
    reached: () => reached,
    called: data.seen,
    async refused() {
      const { body } = await call(gateway.adminPort, { path: '/metrics' })
      const counts = body.matchAll(/^sluice_http_requests_total\{.*code="429",source="gateway",.*\} (\d+)$/gm)
      return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
    },
  }
}

/** Suppresses the provider's notices about test settings: storage in memory, generated keys. */
async function quietly<T>(work: () => Promise<T>): Promise<T> {
  const spies = (['info', 'warn'] as const).map((level) => vi.spyOn(console, level).mockReturnValue())
  try {
    return await work()
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}
