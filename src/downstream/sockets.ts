import { randomUUID } from 'node:crypto'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Server, Socket } from 'node:net'
import { incompleteRequest } from './body.ts'
import { responseOf } from './pipelining.ts'
import { networkOf } from './trusted-proxies.ts'

/** How many sockets may be open at a time: in all, and from one address, or from one /64 of IPv6. */
export type SocketBound = 'maxConnections' | 'maxConnectionsPerAddress'

export interface ConnectionPolicy {
  /** True if this address may open as many as there may be in all, because it stands for many callers. */
  exempt(address: string): boolean
  dropped(bound: SocketBound, address: string): void
}

/**
 * Closes sockets beyond the bounds before a byte is read or a TLS handshake begun, and returns those that are open.
 * (`server.maxConnections` knows no addresses, and in a cluster it sends sockets around between full workers.)
 */
export function boundSockets(
  server: Server,
  bounds: Readonly<Record<SocketBound, number>>,
  policy: ConnectionPolicy,
): Set<Socket> {
  const sockets = new Set<Socket>()
  const slots = createSlots(bounds.maxConnections, bounds.maxConnectionsPerAddress)
  const accept = server.listeners('connection')[0] as (socket: Socket) => void
  server.removeAllListeners('connection')

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    const network = networkOf(address)
    const isFull = slots.isFull()
    if (isFull || !(slots.isFree(network) || policy.exempt(address))) {
      socket.destroy()
      policy.dropped(isFull ? 'maxConnections' : 'maxConnectionsPerAddress', address)
      return
    }
    slots.take(network)
    sockets.add(socket)
    socket.once('close', () => {
      slots.release(network)
      sockets.delete(socket)
    })
    accept.call(server, socket)
  })
  return sockets
}

/** Callers that hold no slot and are still known: a map that grows and shrinks with every call leaves old garbage, as `Bag` says. */
const MAX_IDLE_CALLERS = 4096

/** Counts slots taken, in all and by each caller. */
export function createSlots(max: number, maxEach: number) {
  const held = new Map<string, number>()
  let taken = 0
  return {
    isFull: (): boolean => taken >= max,
    isFree: (caller: string): boolean => taken < max && (held.get(caller) ?? 0) < maxEach,
    take(caller: string): void {
      taken++
      held.set(caller, (held.get(caller) ?? 0) + 1)
    },
    release(caller: string): void {
      taken--
      held.set(caller, held.get(caller)! - 1)
      if (held.size <= taken + MAX_IDLE_CALLERS) return
      for (const [one, slots] of held) if (slots === 0) held.delete(one)
    },
    /** Returns how many callers are known. */
    callers: (): number => held.size,
  }
}

/**
 * Milliseconds that a caller which seems to read nothing of its answer is given: the time for 4 MB at 20 kB a second. Linux reports
 * what was read only when about 1.4 of the 4 MB that it may hold are free again, and a caller's system may ask for it by the megabyte.
 */
export const SLOW_READER_MS = 200_000

/** Closes a socket at once, with a reset, so that its end is not taken for an orderly one; Node cannot reset a TLS socket. */
export function destroyWithReset(socket: Socket): void {
  if ('encrypted' in socket) socket.destroy()
  else socket.resetAndDestroy()
}

/**
 * Resets sockets whose caller takes nothing of a whole answer for `maxMs`, or up to a tenth longer; one that waits for an upstream,
 * or is given its answer, is bounded elsewhere. A timer for all: `server.timeout` has one made for every request.
 */
export function resetSlowReaders(sockets: ReadonlySet<Socket>, maxMs: number): NodeJS.Timeout {
  const unread = new WeakMap<ServerResponse, { readonly bytes: number; readonly since: number }>()
  const sweep = (): void => {
    const now = performance.now()
    for (const socket of sockets) {
      const response = responseOf(socket)
      const bytes = socket.writableLength
      if (response?.writableEnded !== true || bytes === 0) continue
      const before = unread.get(response)
      if (before?.bytes !== bytes) unread.set(response, { bytes, since: now })
      // After an orderly end, the system would keep what was not read for minutes.
      else if (now - before.since >= maxMs) destroyWithReset(socket)
    }
  }
  return setInterval(sweep, maxMs / 10).unref()
}

const LINGER_MS = 2000

/** Ends a socket, but reads and drops for a moment: a reset could overtake its last answer (RFC 9112 section 9.6). */
function lingeringClose(socket: Socket, last = ''): void {
  socket.end(last)
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref()
  socket.once('close', () => clearTimeout(timer))
}

/** Makes Node end an HTTP socket gently after its last answer if the request is still coming. */
export function lingerOnClose(socket: Socket): void {
  const { destroySoon } = socket
  socket.destroySoon = () =>
    incompleteRequest(socket) === undefined ? destroySoon.call(socket) : lingeringClose(socket)
}

/** Ends a socket whose request never became one with a bare status line; returns the id of the answer. */
export function endWithStatus(socket: Socket, status: number, fields = ''): string {
  const requestId = randomUUID()
  lingeringClose(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]!}\r\n${fields}X-Request-Id: ${requestId}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
  )
  return requestId
}
