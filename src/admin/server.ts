import { readdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { Registry } from '../observe/prom-client.ts'
import { type AdminAccess, type AdminResponse, deny, problem } from './access.ts'
import { createLimits, type LimitsParts } from './limits.ts'

export interface AdminParts extends LimitsParts {
  /** Returns the access in force: a reload may replace the token. */
  access(): AdminAccess
  /** Returns why the gateway should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  metrics(): Promise<string>
  overview(): Promise<object>
}

/** Maximum open connections: without one, their descriptors would be missing for callers. */
const MAX_CONNECTIONS = 100
const SHARED_MS = 1000
const CONSOLE = new URL('console/', import.meta.url)
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}
const PAGE_HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const
const READ_ONLY = new Set(['/healthz', '/readyz', '/metrics', '/overview'])
const NOT_FOUND =
  'Not found. See /, /healthz, /readyz, /metrics, /overview, /limits/CALLER, /overrides, /explain.'

export function createAdmin(parts: AdminParts): Server {
  /** The console's files by path. They hold no data, so anyone may load them. */
  const pages = new Map<string, AdminResponse>()
  for (const name of readdirSync(CONSOLE)) {
    const type = CONTENT_TYPES[name.slice(name.lastIndexOf('.') + 1)]
    if (type === undefined) continue
    const body = readFileSync(new URL(name, CONSOLE), 'utf8')
    const path = name === 'index.html' ? '/' : `/console/${name}`
    pages.set(path, { status: 200, body, headers: { ...PAGE_HEADERS, 'Content-Type': type } })
  }
  const limits = createLimits(parts)
  let latest: Promise<object> | undefined

  /** Returns the overview, read at most once a second and after each change: many consoles cost what one does. */
  function overview(): Promise<object> {
    if (latest === undefined) setTimeout(() => (latest = undefined), SHARED_MS).unref()
    return (latest ??= parts.overview())
  }

  /** Never rejects. */
  async function reply(request: IncomingMessage, response: ServerResponse): Promise<AdminResponse> {
    const { method, headers } = request
    const [path = ''] = request.url?.split('?', 1) ?? []
    const page = pages.get(path)
    if (!isOwnSite(request) && !(page !== undefined && isNavigation(request)))
      return text(403, 'Pages of other sites have no access.')
    const isLimits = /^\/(?:limits(?:\/.*)?|overrides|explain)$/.test(path)
    const denial = isLimits || path === '/overview' ? deny(headers, parts.access()) : undefined
    if (denial) return denial
    if (isLimits) return await limits(request, response, path).finally(() => (latest = undefined))
    if (page === undefined && !READ_ONLY.has(path)) return text(404, NOT_FOUND)
    if (method !== 'GET' && method !== 'HEAD') return text(405, 'Use GET.', { Allow: 'GET, HEAD' })
    if (path === '/healthz') return text(200, 'ok')
    if (path === '/readyz') {
      const reason = await parts.notReadyReason()
      return reason === undefined ? text(200, 'ready') : text(503, `not ready: ${reason}`)
    }
    if (path === '/overview')
      return await overview().then(
        (body) => ({ status: 200, body }),
        () => problem(503, 'The gateway does not answer.', { 'Retry-After': '1' }),
      )
    if (page !== undefined) return page
    return await parts.metrics().then(
      (body) => ({ status: 200, body, headers: { 'Content-Type': Registry.PROMETHEUS_CONTENT_TYPE } }),
      () => text(500, 'The metrics could not be collected.'),
    )
  }

  const bounds = { requestTimeout: 10_000, connectionsCheckingInterval: 5000 }
  const server = createServer({ ...bounds, insecureHTTPParser: false }, (request, response) => {
    void reply(request, response).then(({ status, body, headers }) => {
      const isText = typeof body === 'string'
      const bytes = Buffer.from(isText ? body : `${JSON.stringify(body)}\n`)
      response.writeHead(status, {
        'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json',
        'Content-Length': bytes.length,
        'Cache-Control': 'no-store',
        ...headers,
      })
      // Node sends no body after a HEAD.
      response.end(bytes)
    })
  })
  server.maxConnections = MAX_CONNECTIONS
  // Room for the next connection, such as that of a probe.
  server.on('drop', () => server.closeIdleConnections())
  return server
}

function text(status: number, line: string, headers = {}): AdminResponse {
  return { status, body: `${line}\n`, headers }
}

/** False for a request from a page of another site, if the browser reports it. */
const isOwnSite = ({ headers }: IncomingMessage): boolean =>
  ['none', 'same-origin', undefined].includes(headers['sec-fetch-site'])

/** True for a followed link: the page that contains it cannot read the response. */
const isNavigation = ({ headers }: IncomingMessage): boolean =>
  headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'
