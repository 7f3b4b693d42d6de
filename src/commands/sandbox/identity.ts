import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type * as OidcProvider from 'oidc-provider'
import type { ClientMetadata, Configuration, JWK } from 'oidc-provider'
import { createLogin } from './login.ts'

export interface IdentityOptions {
  /** The name under which callers know the provider: its URL at the gateway, path included. */
  readonly issuer: string
  /** For whom its access tokens are: the Data API. */
  readonly audience: string
  readonly clients: readonly ClientMetadata[]
}

/** What a client may ask of the Data API. */
export const DATA_SCOPES = 'accounts:read transactions:read'

/**
 * A real OpenID Provider behind the gateway: pushed authorisation requests, signed request objects, and JWT access tokens
 * (RFC 9068) for the Data API. It speaks of itself by the host that callers use, which the gateway tells it.
 */
export async function createIdentity(options: IdentityOptions): Promise<Server> {
  const { Provider } = await load()
  const provider = new Provider(options.issuer, configure(options))
  provider.proxy = true
  const answer = provider.callback()
  const login = createLogin(provider)
  const { pathname: mount } = new URL(options.issuer)
  return createServer((request, response) => {
    const url = request.url ?? '/'
    if (url.startsWith('/interaction/')) void login(request, response)
    else if (url.startsWith(`${mount}/`)) {
      // The provider finds its own place by the difference between the two.
      Object.assign(request, { originalUrl: url, url: url.slice(mount.length) })
      void answer(request, response)
    } else response.writeHead(404, { 'Content-Type': 'text/plain' }).end('Not Found\n')
  })
}

function configure({ audience, clients }: IdentityOptions): Configuration {
  return {
    clients: [...clients],
    jwks: { keys: makeKeys() },
    cookies: { keys: [randomBytes(32).toString('base64url')] },
    routes: {
      authorization: '/auth',
      pushed_authorization_request: '/request',
      token: '/token',
      jwks: '/certs',
    },
    scopes: ['openid', 'offline_access', ...DATA_SCOPES.split(' ')],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      pushedAuthorizationRequests: { enabled: true },
      requestObjects: { enabled: true },
      claimsParameter: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: DATA_SCOPES,
          audience,
          accessTokenFormat: 'jwt',
          accessTokenTTL: 3600,
          jwt: { sign: { alg: 'PS256' } },
        }),
      },
    },
    pkce: { required: () => false },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    // Whoever logs in agrees to everything, so that there is one page to click through and not two.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client!.clientId,
        accountId: oidc.session!.accountId!,
      })
      grant.addOIDCScope(oidc.params!['scope'] as string)
      grant.addResourceScope(audience, DATA_SCOPES)
      await grant.save()
      return grant
    },
  }
}

function makeKeys(): JWK[] {
  const pairs = [
    generateKeyPairSync('rsa', { modulusLength: 2048 }),
    generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ]
  return pairs.map(({ privateKey }, i) =>
    Object.assign(privateKey.export({ format: 'jwk' }), { kid: `sandbox-${i + 1}`, use: 'sig' }),
  )
}

/** Loads the provider, an optional dependency, when it is needed. */
async function load(): Promise<typeof OidcProvider> {
  withoutItsNotices()
  try {
    return await import('oidc-provider')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new Error('The sandbox needs the package oidc-provider. Install it: npm install oidc-provider@9', {
      cause: error,
    })
  }
}

/** On a terminal, a colour stands before it. */
const NOTICE = /^.{0,10}oidc-provider (?:NOTICE|WARNING): /

/** The provider warns of what a sandbox is for: storage in memory, made-up accounts. Its other messages pass. */
function withoutItsNotices(): void {
  const { console: shared } = globalThis
  for (const level of ['info', 'warn'] as const) {
    const write = shared[level].bind(shared)
    shared[level] = (...words: unknown[]) => {
      if (typeof words[0] !== 'string' || !NOTICE.test(words[0])) write(...words)
    }
  }
}
