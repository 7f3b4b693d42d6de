/**
 * The boundary to http-proxy: the gateway calls it by `createSend`, and it calls the gateway by
 * `addRequest` (sockets), `pipe` (bodies), `proxyRes` and `error`.
 */
import type { ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { BODILESS, type BodyLength, mayBeUnread } from '../downstream/framing.ts'
import { createProxyServer, type Proxied } from '../runtime/http-proxy.ts'
import { completeHead } from '../runtime/node-http.ts'
import { authenticatesConnection } from './bound-schemes.ts'
import { requestOf } from './connection.ts'
import type { Outgoing } from './request-headers.ts'
import { ignore, type UpstreamRequest } from './request.ts'
import { streamResponse } from './response.ts'
import { openTunnel } from './tunnel.ts'

const OPEN = { destroyed: false }
/** The response for http-proxy, which would otherwise listen for the end of it. */
const ENDED = { finished: true }

/** Returns the request for http-proxy, with the method and the fields that the gateway chose. */
function toProxied(owner: UpstreamRequest): Proxied<UpstreamRequest> {
  const { request, outgoing } = owner
  const headers = framingOf(request, outgoing)
  // `UpstreamRequest` handles errors of the caller's request.
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

function pipe(this: Proxied<UpstreamRequest>, clientRequest: ClientRequest): void {
  const { request, streamed, body } = this.owner
  if (streamed) request.pipe(clientRequest)
  else clientRequest.end(body)
}

/** Refuses a 101 that the gateway did not ask for (RFC 9110 section 15.2.2). */
function refuseUpgrade(_: IncomingMessage, socket: Socket): void {
  const owner = requestOf(socket)
  socket.destroy()
  owner?.onError(new Error('the upstream switched protocols unasked'))
}

/** Opens the WebSocket that a handshake asked for. */
function acceptUpgrade(incoming: IncomingMessage, socket: Socket, head: Buffer): void {
  const owner = requestOf(socket)
  if (owner === undefined) socket.destroy()
  else openTunnel(incoming, socket, head, owner)
}

interface SendOptions {
  readonly protocol: string
  /** The path before that of each request. */
  readonly path: string
  /** Maximum bytes of the head of a response. */
  readonly maxHeaderSize: number
}

/** Sends requests to an upstream by http-proxy, over the sockets of `UpstreamRequest`. */
export function createSend({ protocol, path, maxHeaderSize }: SendOptions) {
  const proxy = createProxyServer<UpstreamRequest>({
    maxHeaderSize,
    target: { protocol, host: 'upstream', port: 0 },
    agent: {
      protocol,
      keepAlive: true,
      addRequest(clientRequest, { owner }) {
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
    },
    selfHandleResponse: true,
  })
  proxy.on('proxyRes', (incoming, { owner }) => streamResponse(incoming, owner))
  proxy.on('error', (error, { owner }) => owner.onError(error))

  return (upstreamRequest: UpstreamRequest): void => proxy.web(toProxied(upstreamRequest), ENDED)
}
