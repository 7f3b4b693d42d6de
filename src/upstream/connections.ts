import { createSlots } from '../downstream/sockets.ts'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { createPool, type PooledSocket } from './pool.ts'
import type { UpstreamRequest } from './request.ts'

/** Queue slots per socket. With 256 sockets, one client may queue 1024 requests, more than a limit of 1000 admits at once. */
const WAITING_PER_SOCKET = 8

/**
 * Creates the connections to one upstream: at most `max` keep-alive sockets, and a queue. One caller has at most half of the sockets
 * and of the queue. Requests whose body is still coming have at most half of the sockets, and one caller half of those.
 */
export function createConnections(addresses: Addresses, connect: Connect, max: number) {
  const half = Math.ceil(max / 2)
  const held = createSlots(max, half)
  const uploads = createSlots(half, Math.ceil(half / 2))
  const waiting = createSlots(WAITING_PER_SOCKET * max, WAITING_PER_SOCKET * half)
  const queue: UpstreamRequest[] = []
  const pool = createPool<UpstreamRequest>(addresses, connect, max, free, ({ owner }) => {
    release(owner)
    serveQueue()
  })

  function acquire(request: UpstreamRequest): void {
    request.socketRequested = true
    if (begin(request)) return
    const { caller } = request.outgoing
    if (!waiting.isFree(caller)) for (let i = queue.length - 1; i >= 0; i--) if (queue[i]!.settled) dequeue(i)
    if (waiting.isFree(caller)) {
      waiting.take(caller)
      queue.push(request)
    } else request.failBusy()
  }

  function uploaded(request: UpstreamRequest): void {
    if (!request.uploading) return
    if (request.hasSlot) uploads.release(request.outgoing.caller)
    request.uploading = false
    serveQueue()
  }

  /** Separates a request from a reused socket that closed before a response. */
  function onStaleSocket(request: UpstreamRequest, socket: PooledSocket<UpstreamRequest>): void {
    socket.target.keepAlive.record(socket.idleMs)
    release(request)
    socket.owner = undefined
  }

  /** Uses an idle socket, or opens another; returns false if the request must wait. */
  function begin(request: UpstreamRequest): boolean {
    const { uploading } = request
    const { caller } = request.outgoing
    if (pool.isFull() || !held.isFree(caller) || (uploading && !uploads.isFree(caller))) return false
    const address = addresses.next()!
    const socket = pool.take(request.reuse, address)
    request.hasSlot = true
    held.take(caller)
    if (uploading) uploads.take(caller)
    request.clientRequest!.reusedSocket = socket !== undefined
    if (socket === undefined) dial(request, address)
    else {
      socket.owner = request
      request.clientRequest!.onSocket(socket)
    }
    return true
  }

  /** Tries each address until one accepts the connection: a request without a socket has not been sent yet. */
  function dial(request: UpstreamRequest, address: Address, tried: readonly Address[] = []): void {
    const socket = pool.open(address, (failure, again) => {
      if (failure === undefined)
        return request.settled ? free(socket) : request.clientRequest!.onSocket(socket)
      if (!again) address.health.failed(failure)
      const attempted = again ? tried : [...tried, address]
      const next = again ? address : addresses.next(attempted)
      if (next !== undefined && !request.settled) return dial(request, next, attempted)
      release(request)
      if (!request.settled) request.failGateway(failure)
      serveQueue()
    })
    socket.owner = request
  }

  function free(socket: PooledSocket<UpstreamRequest>): void {
    release(socket.owner)
    socket.owner = undefined
    if (pool.keep(socket)) serveQueue()
  }

  function release(request: UpstreamRequest | undefined): void {
    if (request?.hasSlot !== true) return
    request.hasSlot = false
    held.release(request.outgoing.caller)
    if (request.uploading) uploads.release(request.outgoing.caller)
  }

  function dequeue(index: number): void {
    const [request] = queue.splice(index, 1)
    waiting.release(request!.outgoing.caller)
  }

  /** Begins queued requests in their order, except those whose callers have no free slot. */
  function serveQueue(): void {
    for (let i = 0; i < queue.length && !pool.isFull();) {
      const request = queue[i]!
      if (request.settled || begin(request)) dequeue(i)
      else i++
    }
  }

  return {
    ...{ acquire, uploaded, onStaleSocket, evict: pool.evict, close: pool.close },
    sockets: pool.size,
    waiting: () => queue.filter(({ settled }) => !settled).length,
  }
}
