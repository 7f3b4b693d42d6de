import type { Server, Socket } from 'node:net'
import { networkOf } from './trusted-proxies.ts'

/** How many sockets may be open at a time: in all, and from one address, or from one /64 of IPv6. */
export interface SocketBounds {
  readonly maxConnections: number
  readonly maxConnectionsPerAddress: number
}

export type SocketBound = keyof SocketBounds

export interface ConnectionPolicy {
  /** True if this address may open as many as there may be in all, because it stands for many callers. */
  exempt(address: string): boolean
  dropped(bound: SocketBound, address: string): void
}

/**
 * Closes sockets beyond the bounds before a byte is read or a TLS handshake begun, and returns those that are open.
 * (`server.maxConnections` knows no addresses, and in a cluster it sends sockets around between full workers.)
 */
export function boundSockets(server: Server, bounds: SocketBounds, policy: ConnectionPolicy): Set<Socket> {
  const sockets = new Set<Socket>()
  let count = 0
  const perNetwork = new Map<string, number>()
  const accept = server.listeners('connection')[0] as (socket: Socket) => void
  server.removeAllListeners('connection')

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    const network = networkOf(address)
    const others = perNetwork.get(network) ?? 0
    let beyond: SocketBound | undefined
    if (count >= bounds.maxConnections) beyond = 'maxConnections'
    else if (others >= bounds.maxConnectionsPerAddress && !policy.exempt(address))
      beyond = 'maxConnectionsPerAddress'
    if (beyond !== undefined) {
      socket.destroy()
      policy.dropped(beyond, address)
      return
    }
    count++
    sockets.add(socket)
    perNetwork.set(network, others + 1)
    socket.once('close', () => {
      count--
      sockets.delete(socket)
      const left = perNetwork.get(network)! - 1
      if (left === 0) perNetwork.delete(network)
      else perNetwork.set(network, left)
    })
    accept.call(server, socket)
  })
  return sockets
}
