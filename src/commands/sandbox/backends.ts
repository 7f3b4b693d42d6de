import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type * as OidcProvider from 'oidc-provider'
import type { ClientMetadata, Configuration } from 'oidc-provider'

/** `issuer` is the URL of the provider at the gateway, `audience` that of its access tokens. */
type IdentityOptions = { issuer: string; audience: string; clients: readonly ClientMetadata[] }

export const CLIENT = { id: 'sandbox', secret: 'sandbox-secret' }
/** Calls per second of each client that `--load` simulates: the first exceeds 1000 in a minute. */
export const LOAD = { acme: 20, bluebird: 9, 'crisp-ledger': 4, evergreen: 1 }
export const DATA_SCOPES = 'accounts:read transactions:read'
/** Path of the sandbox client's redirect URI, a page that shows its query. */
export const CALLBACK = '/interaction/callback'

/** Creates a real OpenID Provider: PAR, request objects, access tokens (RFC 9068) for the Data API, and a login that accepts any name. */
export async function createIdentity(options: IdentityOptions): Promise<Server> {
  const { Provider } = await importProvider()
  const provider = new Provider(options.issuer, configure(options))
  provider.proxy = true
  const serve = provider.callback()
  const { pathname: mount } = new URL(options.issuer)
  return createServer((request, response) => {
    const { url = '/' } = request
    if (url.startsWith(`${mount}/`)) {
      // The provider derives its mount path from the difference between the two.
      Object.assign(request, { originalUrl: url, url: url.slice(mount.length) })
      void serve(request, response)
      return
    }
    const { pathname, searchParams } = new URL(url, options.issuer)
    const isCallback = pathname === CALLBACK
    const query = [...searchParams].map(([name, value]) => `${name}: ${value}\n`).join('')
    response.writeHead(isCallback ? 200 : 404, { 'Content-Type': 'text/plain; charset=utf-8' })
    response.end(isCallback ? `Back at the client, with:\n\n${query}` : 'Not Found\n')
  })
}

function configure({ audience, clients }: IdentityOptions): Configuration {
  const on = { enabled: true }
  const keys = [
    generateKeyPairSync('rsa', { modulusLength: 2048 }),
    generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ].map(({ privateKey }) => ({ ...privateKey.export({ format: 'jwk' }), use: 'sig' }))
  const token = { accessTokenFormat: 'jwt', accessTokenTTL: 3600, jwt: { sign: { alg: 'PS256' } } } as const
  return {
    clients: [...clients],
    jwks: { keys },
    cookies: { keys: [randomBytes(32).toString('base64url')] },
    routes: {
      authorization: '/auth',
      pushed_authorization_request: '/request',
      token: '/token',
      jwks: '/certs',
    },
    scopes: ['openid', 'offline_access', ...DATA_SCOPES.split(' ')],
    features: {
      clientCredentials: on,
      introspection: on,
      revocation: on,
      pushedAuthorizationRequests: on,
      requestObjects: on,
      claimsParameter: on,
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: DATA_SCOPES, audience, ...token }),
      },
    },
    pkce: { required: () => false },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    // A login grants everything, so that there is only one page to click through, without consent.
    async loadExistingGrant({ oidc }) {
      const clientId = oidc.client!.clientId
      const grant = new oidc.provider.Grant({ clientId, accountId: oidc.session!.accountId! })
      grant.addOIDCScope(oidc.params!['scope'] as string)
      grant.addResourceScope(audience, DATA_SCOPES)
      await grant.save()
      return grant
    },
  }
}

/** A notice of the provider, with a colour before it on a terminal. */
const NOTICE = /^.{0,10}oidc-provider (?:NOTICE|WARNING): /

/** Imports the provider, an optional dependency, and hides its notices about storage in memory and the sample login. */
async function importProvider(): Promise<typeof OidcProvider> {
  const { console } = globalThis
  for (const level of ['info', 'warn'] as const) {
    const write = console[level].bind(console)
    console[level] = (...words: unknown[]) => {
      if (typeof words[0] !== 'string' || !NOTICE.test(words[0])) write(...words)
    }
  }
  try {
    return await import('oidc-provider')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    const message = 'The sandbox needs the package oidc-provider. Install it: npm install oidc-provider@9'
    throw new Error(message, { cause: error })
  }
}

const TRANSACTIONS = Array.from({ length: 60 }, (_, i) => ({
  id: `txn-${i + 1}`,
  accountId: i % 4 === 0 ? 'acc-2' : 'acc-1',
  amount: { value: -(350 + ((i * 7919) % 9000)), currency: 'GBP' },
  date: new Date(Date.UTC(2026, 0, 1 + i)).toISOString(),
  status: 'posted',
}))

/** Creates a small Data API, with and without `/v3`: transactions, and a sync that always succeeds. The gateway authenticates. */
export function createDataApi(): Server {
  return createServer((request, response) => {
    // Like a real backend, respond after the whole body.
    request.on('error', () => {}).on('end', () => respond(request, response))
    request.resume()
  })
}

function respond({ method, headers, url: target = '/' }: IncomingMessage, response: ServerResponse): void {
  const url = new URL(target, `http://${headers.host ?? 'localhost'}`)
  const send = (status: number, body: object): void =>
    void response.writeHead(status, { 'Content-Type': 'application/json' }).end(`${JSON.stringify(body)}\n`)
  const path = url.pathname.replace(/^\/v3(?=\/)/, '')
  if ((method === 'GET' || method === 'HEAD') && path === '/transactions') send(200, pageOf(url))
  else if (method === 'POST' && /^\/sync\/[^/]+$/.test(path))
    send(200, { data: { syncId: crypto.randomUUID(), status: 'ok' }, meta: {} })
  else send(404, { code: 'NotFound', message: 'Not Found' })
}

function pageOf(url: URL): object {
  const limit = Number(url.searchParams.get('limit')) || 10
  const end = (Number(url.searchParams.get('offset')) || 0) + limit
  const next = new URL(url)
  next.searchParams.set('offset', String(end))
  return {
    data: TRANSACTIONS.slice(end - limit, end),
    links: { self: url.href, ...(end < TRANSACTIONS.length && { next: next.href }) },
    meta: { total: TRANSACTIONS.length },
  }
}
