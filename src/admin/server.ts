import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Answer } from './access.ts'
import { createLimits, type LimitParts } from './limits.ts'

export interface AdminParts extends LimitParts {
  /** Returns why the process should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  /** Returns the text of `/metrics`. */
  metrics(): Promise<string>
  readonly metricsType: string
}

/** Creates the operators' listener: `/healthz`, `/readyz`, `/metrics` and `/limits/:client`. */
export function createAdmin(parts: AdminParts): Server {
  const limits = createLimits(parts)

  /** Never rejects. */
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<Answer> {
    const { method, headers } = request
    const [path = ''] = request.url?.split('?', 1) ?? []
    const { 'sec-fetch-site': site = 'none' } = headers
    if (site !== 'none' && site !== 'same-origin') {
      return { status: 403, body: 'Nothing is shown to pages of other sites.\n' }
    }
    if (path === '/limits' || path.startsWith('/limits/')) return await limits(request, response, path)
    if (!['/healthz', '/readyz', '/metrics'].includes(path)) {
      return { status: 404, body: 'Not found. Here are /healthz, /readyz, /metrics and /limits/CLIENT.\n' }
    }
    if (method !== 'GET' && method !== 'HEAD') {
      return { status: 405, body: 'Only GET and HEAD.\n', headers: { Allow: 'GET, HEAD' } }
    }
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

  return createServer(
    { headersTimeout: 10_000, requestTimeout: 10_000, connectionsCheckingInterval: 5000 },
    (request, response) =>
      void answer(request, response).then(({ status, body, headers }) => {
        const isText = typeof body === 'string'
        const bytes = Buffer.from(isText ? body : `${JSON.stringify(body)}\n`)
        response.writeHead(status, {
          'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json',
          'Content-Length': bytes.length,
          'Cache-Control': 'no-store',
          ...headers,
        })
        response.end(request.method === 'HEAD' ? undefined : bytes)
      }),
  )
}
