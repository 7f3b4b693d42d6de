import type { ClientRequest } from 'node:http'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { Pool, type PooledSocket, type Reuse } from './pool.ts'

/** A request that needs a socket. */
export interface Claim {
  /** The request as it is sent; a retry is another one. */
  readonly sent: ClientRequest | undefined
  /** Whose slots it takes. */
  readonly caller: string
  readonly reuse: Reuse
  /** True while its body is still coming. */
  uploading: boolean
  /** True while it has a socket, or one is being opened for it. */
  holds: boolean
  /** True once it needs no socket any more. */
  readonly over: boolean
  /** Called instead of sending it if too many requests wait for a socket. */
  onFull(): void
  /** Called instead of sending it if no address can be reached. */
  onUnreachable(failure: Error): void
}

/** Slots to wait for each socket: with 256 of them, one client may send all that its limit of 1000 allows at once. */
const WAITING_PER_SOCKET = 8

/**
 * The sockets to one upstream: kept alive, and bounded in number. One caller has at most half of the sockets, and half of the
 * slots to wait; requests whose body is still coming have at most half of the sockets together, and one caller half of those.
 */
export class Connections {
  readonly #addresses: Addresses
  readonly #pool: Pool<Claim>
  readonly #held: Slots
  readonly #uploads: Slots
  readonly #waitSlots: Slots
  readonly #queue: Claim[] = []

  constructor(addresses: Addresses, connect: Connect, max: number) {
    const half = Math.ceil(max / 2)
    this.#addresses = addresses
    this.#held = new Slots(max, half)
    this.#uploads = new Slots(half, Math.ceil(half / 2))
    this.#waitSlots = new Slots(WAITING_PER_SOCKET * max, WAITING_PER_SOCKET * half)
    this.#pool = new Pool<Claim>(
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
  acquire(claim: Claim): void {
    if (!this.#begin(claim) && !this.#enqueue(claim)) claim.onFull()
  }

  /** Releases the upload slot of a request whose body is whole. */
  uploaded(claim: Claim): void {
    if (!claim.uploading) return
    if (claim.holds) this.#uploads.release(claim.caller)
    claim.uploading = false
    this.#serveQueue()
  }

  /** Takes a request off a reused socket that died under it, unanswered. */
  onStaleSocket(claim: Claim, socket: PooledSocket): void {
    socket.target.keepAlive.record(socket.idleMs)
    this.#release(claim)
    socket.owner = undefined
  }

  /** Closes the idle sockets to one address. */
  evict(origin: string): void {
    this.#pool.evict(origin)
  }

  /** Keeps no socket any more; requests under way end undisturbed. */
  close(): void {
    this.#pool.close()
  }

  /** Takes a socket, or opens one; false if the request must wait. */
  #begin(claim: Claim): boolean {
    const { caller, uploading } = claim
    if (this.#pool.isFull || !this.#held.isFree(caller)) return false
    if (uploading && !this.#uploads.isFree(caller)) return false
    const address = this.#addresses.next()!
    const socket = this.#pool.take(claim.reuse, address)
    claim.holds = true
    this.#held.take(caller)
    if (uploading) this.#uploads.take(caller)
    if (socket === undefined) this.#dial(claim, address)
    else {
      claim.sent!.reusedSocket = true
      assign(claim, socket)
    }
    return true
  }

  /** Tries one address after the other until one takes the connection: a request without a socket was not sent anywhere yet. */
  #dial(claim: Claim, address: Address, tried: readonly Address[] = []): void {
    const socket = this.#pool.open(address, (failure, again) => {
      if (failure === undefined) {
        if (claim.over) this.#free(socket)
        else assign(claim, socket)
        return
      }
      if (!again) address.health.failed(failure)
      const attempted = again ? tried : [...tried, address]
      const next = again ? address : this.#addresses.next(attempted)
      if (next !== undefined && !claim.over) {
        this.#dial(claim, next, attempted)
        return
      }
      this.#release(claim)
      if (!claim.over) claim.onUnreachable(failure)
      this.#serveQueue()
    })
    socket.owner = claim
  }

  #free(socket: PooledSocket<Claim>): void {
    this.#release(socket.owner)
    socket.owner = undefined
    if (this.#pool.keep(socket)) this.#serveQueue()
  }

  #release(claim: Claim | undefined): void {
    if (claim?.holds !== true) return
    claim.holds = false
    this.#held.release(claim.caller)
    if (claim.uploading) this.#uploads.release(claim.caller)
  }

  #enqueue(claim: Claim): boolean {
    const { caller } = claim
    if (!this.#waitSlots.isFree(caller)) {
      for (let i = this.#queue.length - 1; i >= 0; i--) if (this.#queue[i]!.over) this.#dequeue(i)
      if (!this.#waitSlots.isFree(caller)) return false
    }
    this.#waitSlots.take(caller)
    this.#queue.push(claim)
    return true
  }

  #dequeue(index: number): void {
    const [claim] = this.#queue.splice(index, 1)
    this.#waitSlots.release(claim!.caller)
  }

  /** Begins waiting requests in their order, except those whose callers have all of their slots. */
  #serveQueue(): void {
    for (let i = 0; i < this.#queue.length && !this.#pool.isFull;) {
      const claim = this.#queue[i]!
      if (claim.over || this.#begin(claim)) this.#dequeue(i)
      else i++
    }
  }
}

function assign(claim: Claim, socket: PooledSocket<Claim>): void {
  socket.owner = claim
  claim.sent!.onSocket(socket)
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
