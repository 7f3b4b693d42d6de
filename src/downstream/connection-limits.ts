import type { Server, Socket } from 'node:net'
import { ipPart } from '../limit/key.ts'
import { createShares } from '../limit/concurrency.ts'

/** How many sockets may be open at a time. */
export interface SocketBounds {
  readonly maxConnections: number
  /** From one address, or from one /64 of IPv6. */
  readonly maxConnectionsPerAddress: number
}

export type SocketBound = keyof SocketBounds

export interface Turnstile {
  /** May this address open as many as there may be in all, because it stands for many callers? */
  exempt(address: string): boolean
  /** Told of each socket that was closed at once. */
  dropped(bound: SocketBound, address: string): void
}

/**
 * Lets a server see no socket beyond its bounds: those are closed before a byte is read or a TLS handshake begun. Returns all
 * that are open, also those that are no HTTP yet, or no more. (`server.maxConnections` knows no addresses, and in a cluster
 * it sends sockets around between full workers.)
 */
export function boundSockets(
  server: Server,
  bounds: SocketBounds,
  { exempt, dropped }: Turnstile,
): Set<Socket> {
  const open = new Set<Socket>()
  // The bound of all is told apart, so that here there is none.
  const ofAddress = createShares(Number.POSITIVE_INFINITY, bounds.maxConnectionsPerAddress)
  const take = server.listeners('connection')[0] as (socket: Socket) => void
  server.removeAllListeners('connection')

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    const key = ipPart(address)
    const beyond =
      open.size >= bounds.maxConnections
        ? 'maxConnections'
        : !ofAddress.free(key) && !exempt(address)
          ? 'maxConnectionsPerAddress'
          : undefined
    if (beyond !== undefined) {
      socket.destroy()
      dropped(beyond, address)
      return
    }
    open.add(socket)
    ofAddress.take(key)
    socket.once('close', () => {
      open.delete(socket)
      ofAddress.giveBack(key)
    })
    take.call(server, socket)
  })
  return open
}
