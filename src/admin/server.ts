import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { type Access, type AdminResponse, deny, problem } from './access.ts'
import { createLimits, type LimitsParts } from './limits.ts'
import { readPages } from './pages.ts'
import { createStreams } from './streams.ts'

export interface AdminParts extends Access, LimitsParts {
  /** Returns why the process should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  /** Returns the text of `/metrics`. */
  metrics(): Promise<string>
  readonly metricsType: string
  /** Returns what the console shows. */
  overview(): Promise<object>
}

export interface Admin {
  readonly server: Server
  /** Ends what the consoles read, which would last as long as they are open. */
  endStreams(): void
}

const NOT_FOUND =
  'Not found. Here are the console at /, and /healthz, /readyz, /metrics, /overview, /limits/CLIENT, /overrides and /explain.\n'

/** Creates the operators' listener: the console, health, metrics, and what is asked about limits. */
export function createAdmin(parts: AdminParts): Admin {
  const pages = readPages()
  const limits = createLimits(parts)
  const streams = createStreams(parts.overview)

  /** Answers `/overview`: once, or again and again to who reads events. */
  async function overview({ headers, method }: IncomingMessage, response: ServerResponse) {
    const { accept = '' } = headers
    if (method === 'GET' && accept.includes('text/event-stream')) return streams.open(response)
    return await parts.overview().then(
      (body) => ({ status: 200, body }),
      () => problem(503, 'The gateway does not answer.', { 'Retry-After': '1' }),
    )
  }

  /** Returns undefined for what goes on as a stream; never rejects. */
  async function answer(
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<AdminResponse | undefined> {
    const { method, headers } = request
    const [path = ''] = request.url?.split('?', 1) ?? []
    const page = pages.get(path)
    if (!isOwnSite(request) && !(page !== undefined && isNavigation(request))) {
      return { status: 403, body: 'Nothing is shown to pages of other sites.\n' }
    }
    const isLimits = ['/limits', '/overrides', '/explain'].includes(path) || path.startsWith('/limits/')
    if (isLimits || path === '/overview') {
      const denial = deny(headers, parts)
      if (denial) return denial
    }
    if (isLimits) return await limits(request, response, path)
    if (page === undefined && !['/healthz', '/readyz', '/metrics', '/overview'].includes(path)) {
      return { status: 404, body: NOT_FOUND }
    }
    if (method !== 'GET' && method !== 'HEAD') {
      return { status: 405, body: 'Only GET and HEAD.\n', headers: { Allow: 'GET, HEAD' } }
    }
    if (page !== undefined) return page
    if (path === '/overview') return await overview(request, response)
    if (path === '/healthz') return { status: 200, body: 'ok\n' }
    if (path === '/readyz') {
      const reason = await parts.notReadyReason()
      if (reason === undefined) return { status: 200, body: 'ready\n' }
      return { status: 503, body: `not ready: ${reason}\n` }
    }
    return await parts.metrics().then(
      (body) => ({ status: 200, body, headers: { 'Content-Type': parts.metricsType } }),
      () => ({ status: 500, body: 'The metrics could not be collected.\n' }),
    )
  }

  const server = createServer(
    {
      headersTimeout: 10_000,
      requestTimeout: 10_000,
      connectionsCheckingInterval: 5000,
      insecureHTTPParser: false,
    },
    (request, response) =>
      void answer(request, response).then((given) => {
        if (given !== undefined) write(given, request, response)
      }),
  )
  return { server, endStreams: streams.end }
}

/** True for a request that no page of another site makes, as far as its browser says so. */
function isOwnSite({ headers }: IncomingMessage): boolean {
  const { 'sec-fetch-site': site = 'none' } = headers
  return site === 'none' || site === 'same-origin'
}

/** True for a link that was followed: the page that has it does not see the answer. */
const isNavigation = ({ headers }: IncomingMessage): boolean =>
  headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'

function write(
  { status, body, headers }: AdminResponse,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const isText = typeof body === 'string'
  const bytes = Buffer.from(isText ? body : `${JSON.stringify(body)}\n`)
  response.writeHead(status, {
    'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json',
    'Content-Length': bytes.length,
    'Cache-Control': 'no-store',
    ...headers,
  })
  response.end(request.method === 'HEAD' ? undefined : bytes)
}
