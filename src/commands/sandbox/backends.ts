import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type * as OidcProvider from 'oidc-provider'
import type { ClientMetadata, Configuration, JWK } from 'oidc-provider'

export interface IdentityOptions {
  /** The provider's URL at the gateway, path included, by which callers know it. */
  readonly issuer: string
  /** The audience of its access tokens: the Data API. */
  readonly audience: string
  readonly clients: readonly ClientMetadata[]
}

/** The client that the sandbox knows. */
export const CLIENT = { id: 'sandbox', secret: 'sandbox-secret' }
/** What a client may ask of the Data API. */
export const DATA_SCOPES = 'accounts:read transactions:read'
/** Where the sandbox's own client is sent back to; the page shows its query. */
export const CALLBACK = '/interaction/callback'

/** A real OpenID Provider behind the gateway: PAR, request objects, access tokens (RFC 9068) for the Data API, and a login that takes any name. */
export async function createIdentity(options: IdentityOptions): Promise<Server> {
  const { Provider } = await load()
  const provider = new Provider(options.issuer, configure(options))
  provider.proxy = true
  const answer = provider.callback()
  const { pathname: mount } = new URL(options.issuer)
  return createServer((request, response) => {
    const { url = '/' } = request
    if (url.startsWith(`${mount}/`)) {
      // The provider finds its mount path by the difference between the two.
      Object.assign(request, { originalUrl: url, url: url.slice(mount.length) })
      void answer(request, response)
      return
    }
    const { pathname, searchParams } = new URL(url, options.issuer)
    const found = pathname === CALLBACK
    response.writeHead(found ? 200 : 404, { 'Content-Type': 'text/plain; charset=utf-8' })
    const listed = [...searchParams].map(([name, value]) => `${name}: ${value}\n`).join('')
    response.end(found ? `Back at the client, with:\n\n${listed}` : 'Not Found\n')
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
    // A login grants everything, so that there is one page to click through, without consent.
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

function makeKeys(): JWK[] {
  const pairs = [
    generateKeyPairSync('rsa', { modulusLength: 2048 }),
    generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ]
  return pairs.map(({ privateKey }, i) =>
    Object.assign(privateKey.export({ format: 'jwk' }), { kid: `sandbox-${i + 1}`, use: 'sig' }),
  )
}

/** On a terminal, a colour stands before it. */
const NOTICE = /^.{0,10}oidc-provider (?:NOTICE|WARNING): /

/** Imports the provider, an optional dependency, without its notices of what a sandbox is for: storage in memory, any login. */
async function load(): Promise<typeof OidcProvider> {
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

const SHOPS = ['Corner Bakery', 'City Railways', 'Green Grocer', 'Book Cellar', 'Cinema Lumière']

const transactions = Array.from({ length: 60 }, (_, i) => ({
  id: `txn-${i + 1}`,
  accountId: i % 4 === 0 ? 'acc-2' : 'acc-1',
  amount: { value: -(350 + ((i * 7919) % 9000)), currency: 'GBP' },
  date: new Date(Date.UTC(2026, 0, 1 + i)).toISOString(),
  shortDescription: SHOPS[i % SHOPS.length],
  status: 'posted',
}))
const PAGE = 10

/** A small Data API, with and without `/v3`: transactions, and a sync that always succeeds. The gateway authenticates. */
export function createDataApi(): Server {
  return createServer((request, response) => {
    // The whole body is taken before the answer, as a real backend does.
    request.on('error', () => {}).on('end', () => answer(request, response))
    request.resume()
  })
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', `http://${request.headers.host ?? 'localhost'}`)
  const [, name = '', id = ''] = /^(?:\/v3)?\/(\w+)(?:\/([^/]+))?$/.exec(url.pathname) ?? []
  const isRead = request.method === 'GET' || request.method === 'HEAD'
  if (isRead && name === 'transactions' && id === '') send(response, 200, page(url))
  else if (request.method === 'POST' && name === 'sync' && id !== '')
    send(response, 200, { data: { syncId: crypto.randomUUID(), status: 'ok' }, meta: {} })
  else send(response, 404, { code: 'NotFound', message: 'Not Found' })
}

function page(url: URL): object {
  const limit = Number(url.searchParams.get('limit')) || PAGE
  const offset = Number(url.searchParams.get('offset')) || 0
  const next = new URL(url)
  next.searchParams.set('offset', String(offset + limit))
  return {
    data: transactions.slice(offset, offset + limit),
    links: { self: url.href, ...(offset + limit < transactions.length && { next: next.href }) },
    meta: { total: transactions.length },
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(`${JSON.stringify(body)}\n`)
}
