import type { Socket } from 'node:net'
import { createSlots } from '../runtime/slots.ts'
import { detachMessage } from '../runtime/node-http.ts'
import type { Address, Addresses, Connect } from './addresses.ts'
import { readAfterFailedWrites } from './failed-writes.ts'
import type { UpstreamRequest } from './request.ts'

export interface PooledSocket extends Socket {
  target: Address
  /** The request that uses the socket, or waits for its connection; undefined while the socket is idle. */
  owner: UpstreamRequest | undefined
  /** `performance.now()` when it became idle, and when it expires. */
  idleSince: number
  idleUntil: number
  /** `performance.now()` after which it carries no further request. */
  usableUntil: number
  /** True while it rests; see `REST_MS`. */
  rests: boolean
  /** True if it has carried an upload; see `readAfterFailedWrites`. */
  readsOn: boolean
}

/**
 * Queue slots per socket. With 256 sockets, one client may queue 1024 requests, more than a limit
 * of 1000 admits at once.
 */
const WAITING_PER_SOCKET = 8
/** Assumed lifetime of an idle socket if the server announces none; Node.js: 5 s. */
const IDLE_MS = 4000
/**
 * Maximum time for which a socket gets requests, in milliseconds, less up to a tenth, so that those
 * opened at once do not end at once: under steady use, a changed name would never be resolved again.
 */
const LIFE_MS = 300_000
const SWEEP_MS = 1000
/**
 * Rest of a socket after a response that has no body (HEAD, 204, 304), or to a request with a body,
 * in milliseconds. A faulty upstream sends a body nevertheless, or leaves that of the request unread
 * and answers it as another request: those bytes would be parsed as the next response. Its system holds
 * a second small packet back until the first is acknowledged, which ours does within 40 ms (Linux:
 * TCP_DELACK_MIN), or with the next request. Bytes that come while the socket is idle close it. A
 * request does not wait for a rest to end if no more sockets may be opened: that would cost two of
 * three requests at 17,000 a second.
 */
const REST_MS = 50

/**
 * Creates the connections to one upstream: at most `max` keep-alive sockets, and a queue. One
 * caller has at most half of the sockets and of the queue. Requests whose body is still coming have
 * at most half of the sockets, and one caller half of those; the same applies to WebSockets.
 */
export function createConnections(addresses: Addresses, connect: Connect, max: number) {
  const half = Math.ceil(max / 2)
  const held = createSlots(max, half)
  const uploads = createSlots(half, Math.ceil(half / 2))
  const webSockets = createSlots(half, Math.ceil(half / 2))
  const waiting = createSlots(WAITING_PER_SOCKET * max, WAITING_PER_SOCKET * half)
  const queue: UpstreamRequest[] = []
  const maxPerAddress = Math.max(1, Math.floor(max / addresses.all.length))
  /** Idle sockets; the one that was used last is last. */
  const idle: PooledSocket[] = []
  let openCount = 0
  let closed = false
  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) if (now >= socket.idleUntil) socket.destroy()
  }, SWEEP_MS).unref()

  const isFull = (): boolean => idle.length === 0 && openCount >= max

  function acquire(request: UpstreamRequest): void {
    if (begin(request)) return
    const { caller } = request.outgoing
    if (!waiting.isFree(caller)) return request.failBusy()
    waiting.take(caller)
    queue.push(request)
    request.waitsFor = 'slot'
  }

  function dequeue(index: number): void {
    const [request] = queue.splice(index, 1)
    waiting.release(request!.outgoing.caller)
  }

  /** Begins queued requests in their order, except those whose callers have no free slot. */
  function serveQueue(): void {
    for (let i = 0; i < queue.length && !isFull();) {
      if (begin(queue[i]!)) dequeue(i)
      else i++
    }
  }

  /** Uses an idle socket, or opens another; returns false if the request must wait. */
  function begin(request: UpstreamRequest): boolean {
    const { uploading, maxIdleMs } = request
    const { caller, isHandshake } = request.outgoing
    if (isFull() || !held.isFree(caller) || (uploading && !uploads.isFree(caller))) return false
    if (isHandshake && !webSockets.isFree(caller)) return false
    held.take(caller)
    if (uploading) uploads.take(caller)
    if (isHandshake) webSockets.take(caller)
    const address = addresses.next()!
    let socket = takeIdle(maxIdleMs, address)
    if (socket === undefined && openCount >= max) {
      // An address that has its share of sockets uses one of another address, or the one that has
      // rested longest. Otherwise, close the socket that has been idle longest.
      if (address.sockets >= maxPerAddress) socket = takeIdle(maxIdleMs) ?? takeResting(maxIdleMs)
      if (socket === undefined) idle[0]!.destroy()
    }
    request.clientRequest!.reusedSocket = socket !== undefined
    if (socket === undefined) dial(request, address)
    else assign(socket, request)
    return true
  }

  function assign(socket: PooledSocket, request: UpstreamRequest): void {
    socket.owner = request
    if (request.streamed && !socket.readsOn) {
      socket.readsOn = true
      readAfterFailedWrites(socket, () => socket.owner?.streamed === true)
    }
    request.address = socket.target
    request.waitsFor = 'response'
    request.clientRequest!.onSocket(socket)
  }

  /** True if a socket (of `address`, if given) may carry a request that needs one idle for less than `maxMs`. */
  const isUsable = (socket: PooledSocket, maxMs: number, address = socket.target): boolean =>
    socket.target === address &&
    performance.now() < Math.min(socket.idleUntil, socket.idleSince + maxMs) &&
    socket.writable &&
    !socket.readableEnded

  const takeAt = (index: number): PooledSocket | undefined =>
    index === -1 ? undefined : idle.splice(index, 1)[0]

  /** Removes the usable idle socket that was used last and does not rest. */
  const takeIdle = (maxMs: number, address?: Address) =>
    takeAt(idle.findLastIndex((socket) => !socket.rests && isUsable(socket, maxMs, address)))

  /** Removes the usable idle socket that has rested longest. */
  const takeResting = (maxMs: number) => takeAt(idle.findIndex((socket) => isUsable(socket, maxMs)))

  function endRest(socket: PooledSocket): void {
    socket.rests = false
    serveQueue()
  }

  /** Tries each address until one accepts the connection: a request without a socket has not been sent yet. */
  function dial(request: UpstreamRequest, address: Address, tried: readonly Address[] = []): void {
    request.waitsFor = 'connection'
    openCount++
    address.sockets++
    const socket = connect(address, (failure) => {
      if (failure === undefined) return request.settled ? free(socket) : assign(socket, request)
      address.health.failed(failure)
      const attempted = [...tried, address]
      const next = request.settled ? undefined : addresses.next(attempted)
      if (next === undefined) return request.failGateway(failure)
      socket.owner = undefined
      dial(request, next, attempted)
    }) as PooledSocket
    socket.target = address
    socket.owner = request
    socket.readsOn = false
    socket.usableUntil = performance.now() + LIFE_MS * (1 - Math.random() / 10)
    socket.on('data', () => {
      // Bytes behind a complete response would be parsed as the response to the next request.
      if (socket.owner === undefined) socket.destroy()
      else if (socket.owner.isAnswered) socket.owner.clientRequest!.shouldKeepAlive = false
    })
    socket.on('free', () => free(socket))
    socket.once('close', () => {
      openCount--
      address.sockets--
      const at = idle.indexOf(socket)
      if (at !== -1) idle.splice(at, 1)
      release(socket)
      serveQueue()
    })
  }

  /** Keeps a socket for another request, or closes it. */
  function free(socket: PooledSocket): void {
    const { keepAliveMs = IDLE_MS, mayBeFollowed = false } = socket.owner ?? {}
    release(socket)
    if (!socket.writable || closed || performance.now() >= socket.usableUntil) {
      socket.destroy()
      return
    }
    detachMessage(socket)
    socket.idleSince = performance.now()
    socket.idleUntil = socket.idleSince + Math.min(IDLE_MS, keepAliveMs)
    idle.push(socket)
    socket.rests = mayBeFollowed
    // After one poll, which reads the bytes that came meanwhile, also if this process was late.
    if (mayBeFollowed) setTimeout(() => setImmediate(endRest, socket), REST_MS).unref()
    serveQueue()
  }

  function release(socket: PooledSocket): void {
    const { owner } = socket
    if (owner === undefined) return
    socket.owner = undefined
    const { caller, isHandshake } = owner.outgoing
    held.release(caller)
    if (isHandshake) webSockets.release(caller)
    if (owner.uploading) uploads.release(caller)
    owner.uploading = false
  }

  return {
    acquire,
    release,
    leave: (request: UpstreamRequest): void => dequeue(queue.indexOf(request)),
    /** Releases the slot of an upload, whose body is complete. */
    uploaded(request: UpstreamRequest): void {
      if (!request.uploading) return
      if (request.waitsFor !== 'slot') uploads.release(request.outgoing.caller)
      request.uploading = false
      serveQueue()
    },
    /** Closes the idle sockets now, and the others when their requests are over. */
    close(): void {
      closed = true
      clearInterval(sweep)
      for (const socket of idle) socket.destroy()
    },
    load: () => ({ sockets: openCount, queue: queue.length }),
  }
}
