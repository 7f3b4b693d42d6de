import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { ClientUsage } from '../limit/usage.ts'
import { type Access, type Answer, deny, problem } from './access.ts'

export interface AdminParts extends Access {
  /** Returns why the process should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  /** Returns the text of `/metrics`. */
  metrics(): Promise<string>
  readonly metricsType: string
  /** Returns what a client has used; rejects if the store cannot be asked. */
  usage(client: string, signal: AbortSignal): Promise<ClientUsage>
  /** Frees what is counted of a client, and returns how many keys; rejects if the store cannot be asked. */
  reset(client: string, signal: AbortSignal): Promise<number>
  /** Called with why the store could not be asked. */
  failed(error: unknown): void
}

/** Creates the operators' listener: `/healthz`, `/readyz`, `/metrics` and `/limits/:client`. */
export function createAdmin(parts: AdminParts): Server {
  let last: Promise<unknown> = Promise.resolve()

  /** Acts for one operator at a time, as each may scan all of Redis, and for none that has left. */
  async function queued<T>(response: ServerResponse, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const left = new AbortController()
    response.once('close', () => left.abort())
    const result = last.then(async () => {
      left.signal.throwIfAborted()
      return await act(left.signal)
    })
    last = result.catch(() => {})
    return await result
  }

  /** Answers `GET` and `DELETE /limits/:client`, the client percent-encoded; never rejects. */
  async function limits(request: IncomingMessage, response: ServerResponse, path: string): Promise<Answer> {
    const { method = '', headers } = request
    const denial = deny(headers, parts)
    if (denial) return denial
    const [, encoded] = /^\/limits\/([^/]+)$/.exec(path) ?? []
    if (encoded === undefined) {
      return problem(404, 'Ask for /limits/ with the id of a client, percent-encoded.')
    }
    let client: string
    try {
      client = decodeURIComponent(encoded)
    } catch {
      return problem(400, 'The id of the client is not percent-encoded UTF-8.')
    }
    if (!['GET', 'HEAD', 'DELETE'].includes(method)) {
      return problem(405, 'Only GET, HEAD and DELETE.', { Allow: 'GET, HEAD, DELETE' })
    }
    try {
      const body = await queued(response, async (signal) =>
        method === 'DELETE'
          ? { client, freed: await parts.reset(client, signal) }
          : await parts.usage(client, signal),
      )
      return { status: 200, body }
    } catch (error) {
      if (!response.destroyed) parts.failed(error)
      const { name, message } = error as Error
      const detail = name === 'DamagedKeyError' ? message : 'The counters are out of reach.'
      return problem(503, detail, { 'Retry-After': '1' })
    }
  }

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
