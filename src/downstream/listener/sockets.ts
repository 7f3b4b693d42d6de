import { randomUUID } from 'node:crypto'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Server, Socket } from 'node:net'
import { createSlots } from '../../runtime/slots.ts'
import { incompleteRequest, responseOf } from '../../runtime/node-http.ts'
import { networkOf } from '../../runtime/address.ts'
import { readProxyHeader } from './proxied.ts'

/** Maximum open sockets: of all, and of one address, or one /64 of IPv6. */
export type SocketBound = 'maxConnections' | 'maxConnectionsPerAddress'
export interface SocketBounds extends Readonly<Record<SocketBound, number>> {
  /** True if each connection starts with a header of the PROXY protocol, from a trusted proxy. */
  readonly proxyProtocol?: boolean
  /** Maximum time for that header, and for the head of a request, in milliseconds. */
  readonly headersTimeoutMs: number
}

export interface ConnectionPolicy {
  /** True for trusted proxies: many callers share their addresses, which have no maximum of their own. */
  trusts(address: string): boolean
  dropped(bound: SocketBound, address: string): void
  /** Called for a connection that is closed because its peer may not, or does not, send a PROXY header. */
  unproxied(peer: string, reason: string): void
}

/**
 * Closes sockets beyond the bounds before any read or TLS handshake; returns the open ones.
 * `server.maxConnections` has no bound per address. With the PROXY protocol, the address of a header
 * is bounded in place of the proxy's.
 */
export function boundSockets(server: Server, bounds: SocketBounds, policy: ConnectionPolicy) {
  const sockets = new Set<Socket>()
  const slots = createSlots(bounds.maxConnections, bounds.maxConnectionsPerAddress)
  const accept = server.listeners('connection')[0] as (socket: Socket) => void
  server.removeAllListeners('connection')
  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    let network = networkOf(address)
    const isFull = slots.isFull()
    if (isFull || !(slots.isFree(network) || policy.trusts(address))) {
      socket.destroy()
      return policy.dropped(isFull ? 'maxConnections' : 'maxConnectionsPerAddress', address)
    }
    slots.take(network)
    sockets.add(socket)
    socket.once('close', () => {
      slots.release(network)
      sockets.delete(socket)
    })
    if (bounds.proxyProtocol !== true) return accept.call(server, socket)
    if (!policy.trusts(address)) {
      socket.destroy()
      return policy.unproxied(address, 'not in listen.trustedProxies')
    }
    readProxyHeader(socket, bounds.headersTimeoutMs, (header) => {
      if (typeof header !== 'object') {
        socket.destroy()
        if (header !== undefined) policy.unproxied(address, header)
        return
      }
      const caller = header.address ?? address
      slots.release(network)
      network = networkOf(caller)
      const isFree = slots.isFree(network) || policy.trusts(caller)
      slots.take(network)
      if (isFree) return accept.call(server, socket)
      socket.destroy()
      policy.dropped('maxConnectionsPerAddress', caller)
    })
  })
  return sockets
}

/**
 * Resets a socket, so that a truncated response does not look complete; Node cannot reset a TLS
 * socket, which is only closed.
 */
export function destroyWithReset(socket: Socket): void {
  if ('encrypted' in socket) socket.destroy()
  else socket.resetAndDestroy()
}

/**
 * Resets sockets whose caller reads nothing of a response for `maxMs`, or up to a tenth longer. One
 * timer serves all; returns it.
 */
export function resetSlowReaders(sockets: ReadonlySet<Socket>, maxMs: number): NodeJS.Timeout {
  const unread = new WeakMap<ServerResponse, { readonly sent: number; readonly since: number }>()
  return setInterval(() => {
    const now = performance.now()
    for (const socket of sockets) {
      const response = responseOf(socket)
      if (!response || socket.writableLength === 0) continue
      const sent = socket.bytesWritten - socket.writableLength
      const before = unread.get(response)
      if (before?.sent !== sent) unread.set(response, { sent, since: now })
      else if (now - before.since >= maxMs) {
        // After an orderly close, the kernel would keep the unread bytes for minutes.
        destroyWithReset(socket)
        response.destroy(new Error(`the caller read too little for ${maxMs} ms`))
      }
    }
  }, maxMs / 10).unref()
}

/** Maximum time of a lingering close in milliseconds, or the request timeout if that is shorter (nginx: 30 s). */
const LINGER_MS = 30_000
/** A lingering close ends if no byte comes or goes for this time, or up to twice as long. */
const LINGER_SILENT_MS = 2000

/**
 * Ends a socket, but reads and drops bytes while they come: a reset could overtake the last
 * response, which some callers read only after they have sent a whole body (RFC 9112 section 9.6).
 * Meanwhile, the socket counts for the bounds of `boundSockets`.
 */
export function lingeringClose(socket: Socket, requestTimeoutMs: number, last = ''): void {
  socket.end(last)
  socket.resume()
  const endAt = performance.now() + Math.min(LINGER_MS, requestTimeoutMs)
  const countBytes = () => socket.bytesRead + socket.bytesWritten - socket.writableLength
  let bytes = countBytes()
  const timer = setInterval(() => {
    if (countBytes() === bytes || performance.now() >= endAt) socket.destroy()
    bytes = countBytes()
  }, LINGER_SILENT_MS).unref()
  socket.once('close', () => clearInterval(timer))
}

/** Makes Node close a socket by `lingeringClose` if its request is incomplete. */
export function lingerOnClose(socket: Socket, requestTimeoutMs: number): void {
  const { destroySoon } = socket
  socket.destroySoon = () =>
    incompleteRequest(socket) === undefined
      ? destroySoon.call(socket)
      : lingeringClose(socket, requestTimeoutMs)
}

/** The response for invalid HTTP: its status, the name of the field of the request id, and its other fields. */
interface LastResponse {
  readonly status: number
  readonly idField: string
  readonly fields: string | undefined
}

/**
 * Ends a socket with a response that has no body, for invalid HTTP, whose fields are not read;
 * returns the new request id of the response.
 */
export function endWithStatus(socket: Socket, requestTimeoutMs: number, response: LastResponse): string {
  const { status, idField, fields = '' } = response
  const requestId = randomUUID()
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]!}\r\n${fields}${idField}: ${requestId}\r\n`
  lingeringClose(socket, requestTimeoutMs, `${head}Connection: close\r\nContent-Length: 0\r\n\r\n`)
  return requestId
}
