/**
 * http-proxy ends here, and the gateway begins: `createSend` leads in; `addRequest` (sockets),
 * `pipe` (bodies), `proxyRes` and `error` lead out.
 */
import type { ClientRequest, IncomingMessage } from 'node:http'
import { BODILESS, type BodyLength, mayBeUnread } from '../downstream/framing.ts'
import { createProxyServer } from '../runtime/http-proxy.ts'
import { completeHead } from '../runtime/node-http.ts'
import { authenticatesConnection } from './bound-schemes.ts'
import type { PooledSocket } from './connections.ts'
import type { Outgoing } from './request-headers.ts'
import { ignore, type UpstreamRequest } from './request.ts'
import { streamResponse } from './response.ts'
import { openTunnel } from './tunnel.ts'

const OPEN = { destroyed: false }
/** The response for http-proxy, which would otherwise listen for the end of it. */
const ENDED = { finished: true }

/** Returns the request for http-proxy, with the method and the fields that the gateway chose. */
function toProxied(owner: UpstreamRequest) {
  const { request, outgoing } = owner
  const headers = framingOf(request, outgoing)
  // http-proxy listens for errors of the caller's request, which `UpstreamRequest` handles.
  return { owner, method: request.method, headers, socket: OPEN, on: ignore, pipe }
}

/**
 * Returns the fields that frame the body: Node.js would send bodies without a length for some
 * methods, and announce chunks for no body for others.
 */
function framingOf(request: IncomingMessage, { bodyLength, isHandshake }: Outgoing) {
  const { method, headers } = request
  if (isHandshake) return ['connection', 'Upgrade', 'upgrade', 'websocket']
  const connection = needsOwnConnection(request, bodyLength) ? ['connection', 'close'] : []
  if (bodyLength === undefined) return ['transfer-encoding', 'chunked', ...connection]
  const isAnnounced = headers['content-length'] !== undefined || !BODILESS.has(method)
  return isAnnounced ? ['content-length', String(bodyLength), ...connection] : connection
}

/**
 * Returns true if no request may follow on the connection. A server that leaves the body unread
 * must close it: the body would be its next request. A server that authenticates the connection
 * would take the next request for one of the same caller.
 */
function needsOwnConnection({ method, headers }: IncomingMessage, bodyLength: BodyLength): boolean {
  return mayBeUnread(method, bodyLength) || authenticatesConnection(headers.authorization)
}

type Proxied = ReturnType<typeof toProxied>

function pipe(this: Proxied, clientRequest: ClientRequest): void {
  const { request, streamed, body } = this.owner
  if (streamed) request.pipe(clientRequest)
  else clientRequest.end(body)
}

/** Refuses a 101 that the gateway did not ask for (RFC 9110 section 15.2.2). */
function refuseUpgrade(_: IncomingMessage, socket: PooledSocket): void {
  const { owner } = socket
  socket.destroy()
  owner!.onError(new Error('the upstream switched protocols unasked'))
}

/** Opens the WebSocket that a handshake asked for. */
function acceptUpgrade(incoming: IncomingMessage, socket: PooledSocket, head: Buffer): void {
  openTunnel(incoming, socket, head, socket.owner!)
}

const ownerOf = (proxied: unknown): UpstreamRequest => (proxied as Proxied).owner

interface SendOptions {
  readonly protocol: string
  /** The path before that of each request. */
  readonly path: string
  /** Maximum bytes of the head of a response. */
  readonly maxHeaderSize: number
}

/** Sends requests to an upstream by http-proxy, over the sockets of `UpstreamRequest`. */
export function createSend({ protocol, path, maxHeaderSize }: SendOptions) {
  const options = {
    // Read by `requestOptions`.
    maxHeaderSize,
    // http-proxy reads only the protocol: the sockets of `addRequest` have the address.
    target: { protocol, host: 'upstream', port: 0 },
    agent: {
      protocol,
      keepAlive: true,
      addRequest(clientRequest: ClientRequest, { owner }: Proxied) {
        // Without a limit: Node.js would drop the fields beyond it silently. Its limit of the head's size stays.
        clientRequest.maxHeadersCount = 0
        const { request, outgoing } = owner
        const { bodyLength, isHandshake } = outgoing
        // After a handshake, a server may read bytes of the other protocol.
        if (isHandshake || needsOwnConnection(request, bodyLength)) clientRequest.shouldKeepAlive = false
        completeHead(clientRequest, path + outgoing.target, outgoing.headers)
        clientRequest.on('upgrade', isHandshake ? acceptUpgrade : refuseUpgrade)
        owner.onRequest(clientRequest)
      },
    } as never,
    selfHandleResponse: true,
  }
  const proxy = createProxyServer(options)
  proxy.on('proxyRes', (incoming, request) => streamResponse(incoming, ownerOf(request)))
  proxy.on('error', (error, request) => ownerOf(request).onError(error))

  return (upstreamRequest: UpstreamRequest): void =>
    proxy.web(toProxied(upstreamRequest) as never, ENDED as never)
}
