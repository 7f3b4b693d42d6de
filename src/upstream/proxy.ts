/** http-proxy ends here, and the gateway begins: `createSend` leads in; `addRequest` (sockets), `pipe` (bodies), `proxyRes` and `error` lead out. */
import type { ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { BODILESS } from '../downstream/body.ts'
import { createProxyServer } from '../runtime/http-proxy.ts'
import type { UpstreamRequest } from './request.ts'
import { streamResponse } from './response.ts'

const OPEN = { destroyed: false }

/** Returns the request for http-proxy, which copies fields and URL from it. The gateway chooses these itself. */
function toProxied(upstreamRequest: UpstreamRequest) {
  const { request, outgoing } = upstreamRequest
  const { method } = request
  const { target, headers, bodyLength } = outgoing
  // Node.js would send bodies without a length for some methods, and announce chunks for no body for others.
  if (bodyLength === undefined) headers['transfer-encoding'] = 'chunked'
  else if (request.headers['content-length'] !== undefined || !BODILESS.has(method))
    headers['content-length'] = String(bodyLength)
  return { upstreamRequest, method, url: target, headers, socket: OPEN, on: ignore, pipe }
}

type Proxied = ReturnType<typeof toProxied>

/** http-proxy listens for errors of the caller's request, which `UpstreamRequest` handles. */
function ignore(): void {}

function pipe(this: Proxied, clientRequest: ClientRequest): void {
  const { request, streamed, body } = this.upstreamRequest
  if (streamed) request.pipe(clientRequest)
  else clientRequest.end(body)
}

const ownerOf = (proxied: unknown): UpstreamRequest => (proxied as Proxied).upstreamRequest

/** Sends requests to an upstream by http-proxy, over the sockets of `UpstreamRequest`. */
export function createSend(protocol: string): (upstreamRequest: UpstreamRequest) => void {
  // http-proxy calls `addRequest` before `proxy.web` returns, so this is its request.
  let current: UpstreamRequest
  const proxy = createProxyServer({
    // http-proxy reads only the protocol: the sockets of `addRequest` have the address.
    target: { protocol, host: 'upstream', port: 0 },
    agent: {
      protocol,
      keepAlive: true,
      addRequest(clientRequest: ClientRequest) {
        const owner = current
        // Without a limit: Node.js would drop the fields beyond it silently. Its limit of the head's size stays.
        clientRequest.maxHeadersCount = 0
        // http-proxy joins slashes, and rewrites `http:/`.
        clientRequest.path = owner.outgoing.target
        // A 101 that the gateway did not ask for (RFC 9110 section 15.2.2).
        clientRequest.on('upgrade', (_: IncomingMessage, socket: Socket) => {
          socket.destroy()
          owner.onError(new Error('the upstream switched protocols unasked'))
        })
        owner.onRequest(clientRequest)
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
      proxy.web(toProxied(upstreamRequest) as never, upstreamRequest.response)
    } catch (error) {
      // The head holds something that cannot be sent.
      upstreamRequest.failGateway(error as Error)
    }
  }
}
