/**
 * http-proxy ends here, and the gateway's code begins: `createSend` passes a request in; `addRequest` (sockets), `proxyRes` and `error`
 * lead out.
 */
import type { ClientRequest } from 'node:http'
import { createProxyServer } from '../runtime/http-proxy.ts'
import type { Fields } from './headers.ts'
import type { UpstreamRequest } from './request.ts'
import { streamResponse } from './response.ts'

const OPEN = { destroyed: false }
const WITH_BODY: ReadonlySet<string | undefined> = new Set(['POST', 'PUT', 'PATCH'])

/**
 * The request as http-proxy sees it, in place of the caller's: http-proxy copies its fields and its URL, which the gateway must
 * choose itself. Errors of the caller's request are handled by `UpstreamRequest`.
 */
class ProxiedRequest {
  readonly headers: Fields
  readonly url: string
  readonly socket = OPEN
  readonly method: string | undefined
  readonly upstreamRequest: UpstreamRequest

  constructor(upstreamRequest: UpstreamRequest) {
    const { request, outgoing } = upstreamRequest
    this.upstreamRequest = upstreamRequest
    this.method = request.method
    this.url = outgoing.target
    this.headers = outgoing.headers
    // Node.js would send bodies without a length for some methods, and announce chunks for no body for others.
    if (outgoing.bodyLength === undefined) this.headers['transfer-encoding'] = 'chunked'
    else if (request.headers['content-length'] !== undefined || WITH_BODY.has(request.method))
      this.headers['content-length'] = String(outgoing.bodyLength)
  }

  // http-proxy listens for errors, which `UpstreamRequest` handles.
  on(): void {}

  pipe(clientRequest: ClientRequest): void {
    const { request, streamed, body } = this.upstreamRequest
    if (streamed) request.pipe(clientRequest)
    else clientRequest.end(body)
  }
}

const ownerOf = (request: unknown): UpstreamRequest => (request as ProxiedRequest).upstreamRequest

/** Sends requests to an upstream by http-proxy, over the sockets of `UpstreamRequest`. */
export function createSend(protocol: string): (upstreamRequest: UpstreamRequest) => void {
  // http-proxy calls `addRequest` before `proxy.web` returns, so this is its request.
  let current: UpstreamRequest
  const proxy = createProxyServer({
    // http-proxy reads only the protocol: the sockets of `addRequest` have the address.
    target: { protocol, host: 'upstream', port: 0 },
    agent: {
      protocol,
      defaultPort: protocol === 'https:' ? 443 : 80,
      keepAlive: true,
      addRequest(clientRequest: ClientRequest) {
        // Without a limit: Node.js would drop the fields beyond it silently. Its limit of the head's size stays.
        clientRequest.maxHeadersCount = 0
        // http-proxy joins slashes, and rewrites `http:/`.
        clientRequest.path = current.outgoing.target
        current.onRequest(clientRequest)
      },
    } as never,
    // Options of every request; the first overrides `--insecure-http-parser`.
    ssl: { insecureHTTPParser: false, setHost: false } as never,
    selfHandleResponse: true,
    // Sends `url` without parsing it.
    toProxy: true,
  })
  proxy.on('proxyRes', (incoming, request) => streamResponse(incoming, ownerOf(request)))
  proxy.on('error', (error, request) => ownerOf(request).onError(error))

  return (upstreamRequest) => {
    current = upstreamRequest
    try {
      proxy.web(new ProxiedRequest(upstreamRequest) as never, upstreamRequest.response)
    } catch (error) {
      // The head holds something that cannot be sent.
      upstreamRequest.failGateway(error as Error)
    }
  }
}
