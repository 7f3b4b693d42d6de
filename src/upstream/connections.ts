import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { Pool, type PooledSocket } from './pool.ts'
import type { UpstreamRequest } from './request.ts'

/** Slots to wait for each socket: with 256 of them, one client may send all that its limit of 1000 allows at once. */
const WAITING_PER_SOCKET = 8

/**
 * The sockets to one upstream: kept alive, and bounded in number. One caller has at most half of the sockets, and half of the
 * slots to wait; requests whose body is still coming have at most half of the sockets together, and one caller half of those.
 */
export class Connections {
  readonly #addresses: Addresses
  readonly pool: Pool
  readonly #held: Slots
  readonly #uploads: Slots
  readonly #waitSlots: Slots
  readonly #queue: UpstreamRequest[] = []

  constructor(addresses: Addresses, connect: Connect, max: number) {
    const half = Math.ceil(max / 2)
    this.#addresses = addresses
    this.#held = new Slots(max, half)
    this.#uploads = new Slots(half, Math.ceil(half / 2))
    this.#waitSlots = new Slots(WAITING_PER_SOCKET * max, WAITING_PER_SOCKET * half)
    this.pool = new Pool(
      addresses,
      connect,
      max,
      (socket) => this.#free(socket),
      ({ owner }) => {
        this.#release(owner)
        this.#serveQueue()
      },
    )
  }

  /** Gives a request a connected socket, at once or when one is free. */
  acquire(request: UpstreamRequest): void {
    if (!this.#begin(request) && !this.#enqueue(request)) request.failBusy()
  }

  /** Releases the upload slot of a request whose body is whole. */
  uploaded(request: UpstreamRequest): void {
    if (!request.uploading) return
    if (request.holds) this.#uploads.release(request.outgoing.caller)
    request.uploading = false
    this.#serveQueue()
  }

  /** Takes a request off a reused socket that died under it, unanswered. */
  onStaleSocket(request: UpstreamRequest, socket: PooledSocket): void {
    socket.target.keepAlive.record(socket.idleMs)
    this.#release(request)
    socket.owner = undefined
  }

  /** Takes a socket, or opens one; false if the request must wait. */
  #begin(request: UpstreamRequest): boolean {
    const { uploading } = request
    const { caller } = request.outgoing
    if (this.pool.isFull || !this.#held.isFree(caller)) return false
    if (uploading && !this.#uploads.isFree(caller)) return false
    const address = this.#addresses.next()!
    const socket = this.pool.take(request.reuse, address)
    request.holds = true
    this.#held.take(caller)
    if (uploading) this.#uploads.take(caller)
    if (socket === undefined) this.#dial(request, address)
    else {
      request.sent!.reusedSocket = true
      assign(request, socket)
    }
    return true
  }

  /** Tries one address after the other until one takes the connection: a request without a socket was not sent anywhere yet. */
  #dial(request: UpstreamRequest, address: Address, tried: readonly Address[] = []): void {
    const socket = this.pool.open(address, (failure, again) => {
      if (failure === undefined) {
        if (request.over) this.#free(socket)
        else assign(request, socket)
        return
      }
      if (!again) address.health.failed(failure)
      const attempted = again ? tried : [...tried, address]
      const next = again ? address : this.#addresses.next(attempted)
      if (next !== undefined && !request.over) {
        this.#dial(request, next, attempted)
        return
      }
      this.#release(request)
      if (!request.over) request.failUnreachable(failure)
      this.#serveQueue()
    })
    socket.owner = request
  }

  #free(socket: PooledSocket): void {
    this.#release(socket.owner)
    socket.owner = undefined
    if (this.pool.keep(socket)) this.#serveQueue()
  }

  #release(request: UpstreamRequest | undefined): void {
    if (request?.holds !== true) return
    request.holds = false
    this.#held.release(request.outgoing.caller)
    if (request.uploading) this.#uploads.release(request.outgoing.caller)
  }

  #enqueue(request: UpstreamRequest): boolean {
    const { caller } = request.outgoing
    if (!this.#waitSlots.isFree(caller)) {
      for (let i = this.#queue.length - 1; i >= 0; i--) if (this.#queue[i]!.over) this.#dequeue(i)
      if (!this.#waitSlots.isFree(caller)) return false
    }
    this.#waitSlots.take(caller)
    this.#queue.push(request)
    return true
  }

  #dequeue(index: number): void {
    const [request] = this.#queue.splice(index, 1)
    this.#waitSlots.release(request!.outgoing.caller)
  }

  /** Begins waiting requests in their order, except those whose callers have all of their slots. */
  #serveQueue(): void {
    for (let i = 0; i < this.#queue.length && !this.pool.isFull;) {
      const request = this.#queue[i]!
      if (request.over || this.#begin(request)) this.#dequeue(i)
      else i++
    }
  }
}

function assign(request: UpstreamRequest, socket: PooledSocket): void {
  socket.owner = request
  request.sent!.onSocket(socket)
}

/** Counts slots taken, in all and by each caller; a caller that holds none takes no memory. */
export class Slots {
  readonly #max: number
  readonly #maxEach: number
  readonly #held = new Map<string, number>()
  #taken = 0

  constructor(max: number, maxEach: number) {
    this.#max = max
    this.#maxEach = maxEach
  }

  isFree(caller: string): boolean {
    return this.#taken < this.#max && (this.#held.get(caller) ?? 0) < this.#maxEach
  }

  take(caller: string): void {
    this.#taken++
    this.#held.set(caller, (this.#held.get(caller) ?? 0) + 1)
  }

  release(caller: string): void {
    this.#taken--
    const left = this.#held.get(caller)! - 1
    if (left === 0) this.#held.delete(caller)
    else this.#held.set(caller, left)
  }
}
