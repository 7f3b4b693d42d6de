import { randomUUID } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type * as OidcProvider from 'oidc-provider'
import type { ClientMetadata, Configuration } from 'oidc-provider'
import { toError } from '../../runtime/to-error.ts'

/** `issuer` is the URL of the provider at the gateway, `audience` that of its access tokens. */
type IdentityOptions = { issuer: string; audience: string; clients: readonly ClientMetadata[] }

const SECRET = 'sandbox-secret'
/** Calls per second of each client that `--load` simulates: the first exceeds 1000 in a minute. */
const LOAD = { acme: 20, bluebird: 9, 'crisp-ledger': 4, evergreen: 1 }
const DATA_SCOPES = 'accounts:read transactions:read'
const SYNC = '/v3/sync/1ffe704d-3962-4a92-8c8e-293880fb449a'
/** Part of the load's calls that are a sync. */
const SYNCS = 0.05
/** Timeout of a call of the load, which bounds the open calls. */
const TIMEOUT_MS = 5000

/** Returns the clients of the provider: `sandbox` for the commands of config/sandbox.txt, and those of the load. */
export const clientsAt = (gateway: string): readonly ClientMetadata[] =>
  ['sandbox', ...Object.keys(LOAD)].map((id) => ({
    client_id: id,
    client_secret: SECRET,
    grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
    scope: `openid offline_access ${DATA_SCOPES}`,
    redirect_uris: [`${gateway}/interaction/callback`],
  }))

/**
 * Creates a real OpenID Provider: PAR, request objects, access tokens (RFC 9068) for the Data API,
 * and a login that accepts any name.
 */
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
    // The page of the client to which the user returns: it shows its query.
    const { searchParams } = new URL(url, options.issuer)
    response.setHeader('Content-Type', 'text/plain; charset=utf-8')
    response.end([...searchParams].map(([name, value]) => `${name}: ${value}\n`).join(''))
  })
}

function configure({ audience, clients }: IdentityOptions): Configuration {
  const on = { enabled: true }
  const token = { scope: DATA_SCOPES, audience, accessTokenTTL: 3600, accessTokenFormat: 'jwt' } as const
  return {
    clients: [...clients],
    cookies: { keys: [SECRET] },
    routes: { jwks: '/certs' },
    scopes: ['openid', 'offline_access', ...DATA_SCOPES.split(' ')],
    features: {
      clientCredentials: on,
      requestObjects: on,
      claimsParameter: on,
      resourceIndicators: {
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => token,
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

async function importProvider(): Promise<typeof OidcProvider> {
  // The provider writes notices about storage in memory and the sample login.
  Object.assign(globalThis.console, { info: () => {}, warn: () => {} })
  try {
    return await import('oidc-provider')
  } catch (error) {
    if (toError(error).code !== 'ERR_MODULE_NOT_FOUND') throw error
    const message =
      'The sandbox needs a package. Install it, with --global if Sluice is installed so: npm install oidc-provider@9'
    throw new Error(message, { cause: error })
  }
}

/**
 * Creates a small Data API, with and without `/v3`: transactions, and a sync that always succeeds.
 * The gateway authenticates.
 */
export function createDataApi(): Server {
  return createServer((request, response) => {
    const found = resourceOf(request.method, new URL(request.url ?? '/', 'http://localhost'))
    // Like a real backend, responds after the whole body.
    request.resume().on('error', () => {})
    request.on('end', () => {
      response.writeHead(found ? 200 : 404, { 'Content-Type': 'application/json' })
      response.end(`${JSON.stringify(found ?? { code: 'NotFound', message: 'Not Found' })}\n`)
    })
  })
}

function resourceOf(method: string | undefined, { pathname, searchParams }: URL) {
  if (method === 'POST' && /^(\/v3)?\/sync\/[^/]+$/.test(pathname))
    return { data: { syncId: randomUUID(), status: 'ok' }, meta: {} }
  if (!/^(\/v3)?\/transactions$/.test(pathname)) return undefined
  const count = Number(searchParams.get('limit')) || 10
  return { data: TRANSACTIONS.slice(0, count), meta: { total: TRANSACTIONS.length } }
}

const TRANSACTIONS = Array.from({ length: 60 }, (_, i) => ({
  id: `txn-${i + 1}`,
  accountId: i % 4 === 0 ? 'acc-2' : 'acc-1',
  amount: { value: -350 - i, currency: 'GBP' },
}))

/**
 * Sends calls of the clients of `LOAD` to each gateway in turn until `signal` is aborted. Some are
 * refused, and failures are ignored.
 */
export function sendLoad(gateways: readonly string[], signal: AbortSignal): void {
  let sent = 0
  const ask = (path: string, init: RequestInit) => {
    const gateway = gateways[sent++ % gateways.length]!
    return fetch(gateway + path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) })
  }
  for (const [id, perSecond] of Object.entries(LOAD)) {
    let token: string | undefined
    const client = { client_id: id, client_secret: SECRET, scope: DATA_SCOPES }
    const body = new URLSearchParams({ grant_type: 'client_credentials', ...client })
    const call = async (): Promise<void> => {
      if (token === undefined) {
        const response = await ask('/oidc/token', { method: 'POST', body })
        token = ((await response.json()) as { access_token: string }).access_token
      }
      const isSync = Math.random() < SYNCS
      const init = { method: isSync ? 'POST' : 'GET', headers: { Authorization: `Bearer ${token}` } }
      const response = await ask(isSync ? SYNC : '/v3/transactions', init)
      // The next call replaces an expired token.
      if (response.status === 401) token = undefined
      await response.arrayBuffer()
    }
    const timer = setInterval(() => void call().catch(() => {}), 1000 / perSecond)
    signal.addEventListener('abort', () => clearInterval(timer))
  }
}
