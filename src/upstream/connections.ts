import type { Socket } from 'node:net'
import { detachMessage } from '../runtime/node-http.ts'
import type { Address, Addresses, Connect } from './addresses.ts'
import { Connection, connectionOf } from './connection.ts'
import { createIdleConnections } from './idle-connections.ts'
import type { UpstreamRequest } from './request.ts'
import { createSocketSlots } from './socket-slots.ts'
import { createWaitQueue } from './wait-queue.ts'

/** Creates the connections to one upstream: at most `max` keep-alive sockets, and a queue. */
export function createConnections(addresses: Addresses, connect: Connect, max: number) {
  const slots = createSocketSlots(max)
  const queue = createWaitQueue(max)
  const idle = createIdleConnections(serveQueue)
  const maxPerAddress = Math.max(1, Math.floor(max / addresses.all.length))
  let openCount = 0
  let closed = false

  const isFull = (): boolean => idle.isEmpty() && openCount >= max

  /** Begins a request or, if there is no socket for it, queues it. Fails it if it cannot be queued. */
  function acquire(request: UpstreamRequest): void {
    if (!begin(request) && !queue.add(request)) request.failBusy()
  }

  function serveQueue(): void {
    queue.serve(begin, isFull)
  }

  /** Uses an idle socket, or opens another; returns false if the request must wait. */
  function begin(request: UpstreamRequest): boolean {
    if (isFull() || !slots.take(request)) return false
    const { maxIdleMs } = request
    const address = addresses.next()!
    let connection = idle.take(maxIdleMs, address)
    if (connection === undefined && openCount >= max) {
      // An address that has its share of sockets uses one of another address, or the one that has
      // rested longest. Otherwise, close the socket that has been idle longest.
      if (address.sockets >= maxPerAddress) connection = idle.take(maxIdleMs) ?? idle.takeResting(maxIdleMs)
      if (connection === undefined) idle.closeOldest()
    }
    request.clientRequest!.reusedSocket = connection !== undefined
    if (connection === undefined) dial(request, address)
    else connection.assign(request)
    return true
  }

  /** Tries each address until one accepts the connection: a request without a socket has not been sent yet. */
  function dial(request: UpstreamRequest, address: Address, tried: readonly Address[] = []): void {
    request.stage = 'connection'
    openCount++
    address.sockets++
    const socket = connect(address, (failure) => {
      if (failure === undefined) return request.settled ? free(connection) : connection.assign(request)
      address.health.failed(failure)
      const attempted = [...tried, address]
      const next = request.settled ? undefined : addresses.next(attempted)
      if (next === undefined) return request.failGateway(failure)
      connection.owner = undefined
      dial(request, next, attempted)
    })
    const connection = new Connection(socket, address, request)
    socket.on('free', () => free(connection))
    socket.once('close', () => {
      openCount--
      address.sockets--
      idle.remove(connection)
      release(connection)
      serveQueue()
    })
  }

  /** Keeps a connection for another request, or closes it. */
  function free(connection: Connection): void {
    const { socket, owner } = connection
    release(connection)
    if (!socket.writable || closed || performance.now() >= connection.usableUntil) {
      socket.destroy()
      return
    }
    detachMessage(socket)
    idle.add(connection, owner?.keepAliveMs, owner?.mayBeFollowed)
    serveQueue()
  }

  function release(connection: Connection): void {
    const { owner } = connection
    if (owner === undefined) return
    connection.owner = undefined
    slots.release(owner)
    owner.uploading = false
  }

  return {
    acquire,
    /** Releases the slots of the request that uses a socket. */
    release(socket: Socket): void {
      const connection = connectionOf(socket)
      if (connection !== undefined) release(connection)
    },
    leave: queue.remove,
    /** Releases the slot of an upload, whose body is complete. */
    uploaded(request: UpstreamRequest): void {
      if (!request.uploading) return
      if (request.stage !== 'slot') slots.releaseUpload(request)
      request.uploading = false
      serveQueue()
    },
    /** Closes the idle sockets now, and the others when their requests are over. */
    close(): void {
      closed = true
      idle.close()
    },
    load: () => ({ sockets: openCount, queue: queue.length() }),
  }
}
