import { createServer, type RequestListener, type Server } from 'node:http'
import { createLimits, isLimitsPath, type LimitParts } from './limits.ts'

export interface AdminParts extends LimitParts {
  /** Why the process should get no requests; undefined where it should. */
  unready(): string | undefined | Promise<string | undefined>
  metrics(): Promise<string>
  readonly metricsType: string
}

/** The operator's listener: `/healthz`, `/readyz`, `/metrics` and `/limits/:client`. */
export function createAdmin(parts: AdminParts): Server {
  const limits = createLimits(parts)

  const answer: RequestListener = (request, response) => {
    const speak = (
      status: number,
      type: string,
      body: string,
      headers: Readonly<Record<string, string>> = {},
    ): void => {
      response.writeHead(status, {
        'Content-Type': type,
        'Content-Length': Buffer.byteLength(body),
        'Cache-Control': 'no-store',
        ...headers,
      })
      response.end(request.method === 'HEAD' ? undefined : body)
    }
    const text = 'text/plain; charset=utf-8'
    const path = (request.url ?? '').replace(/\?.*$/s, '')
    const { 'sec-fetch-site': site = 'none' } = request.headers
    if (site !== 'none' && site !== 'same-origin') {
      speak(403, text, 'Nothing is told to pages of other sites.\n')
    } else if (isLimitsPath(path)) {
      void limits(request, response, path).then(({ status, headers, body }) =>
        speak(status, 'application/json', `${JSON.stringify(body)}\n`, headers),
      )
    } else if (path !== '/healthz' && path !== '/readyz' && path !== '/metrics') {
      speak(404, text, 'Not found. Here are /healthz, /readyz, /metrics and /limits/CLIENT.\n')
    } else if (request.method !== 'GET' && request.method !== 'HEAD') {
      speak(405, text, 'Only GET and HEAD.\n', { Allow: 'GET, HEAD' })
    } else if (path === '/healthz') {
      speak(200, text, 'ok\n')
    } else if (path === '/readyz') {
      void Promise.resolve(parts.unready()).then((reason) =>
        reason === undefined ? speak(200, text, 'ready\n') : speak(503, text, `not ready: ${reason}\n`),
      )
    } else {
      parts.metrics().then(
        (body) => speak(200, parts.metricsType, body),
        () => speak(500, text, 'The metrics could not be collected.\n'),
      )
    }
  }
  return createServer(
    { headersTimeout: 10_000, requestTimeout: 10_000, connectionsCheckingInterval: 5000 },
    answer,
  )
}
