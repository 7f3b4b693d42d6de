import type { Socket } from 'node:net'
import type { Address } from './addresses.ts'
import { readAfterFailedWrites } from './failed-writes.ts'
import type { UpstreamRequest } from './request.ts'

/**
 * Maximum time for which a socket gets requests, in milliseconds, less up to a tenth, so that those
 * opened at once do not end at once: under steady use, a changed name would never be resolved again.
 */
const LIFE_MS = 300_000

/** The connections of all pools by their sockets, for events for which Node.js reports only the socket. */
const connectionsBySocket = new WeakMap<Socket, Connection>()

export const connectionOf = (socket: Socket): Connection | undefined => connectionsBySocket.get(socket)

/** Returns the request that uses a socket; undefined while it is idle. */
export const requestOf = (socket: Socket): UpstreamRequest | undefined => connectionOf(socket)?.owner

/** A socket to an upstream, and what the pool knows of it. */
export class Connection {
  readonly socket: Socket
  readonly target: Address
  /** The request that uses the socket, or waits for its connection; undefined while the socket is idle. */
  owner: UpstreamRequest | undefined
  /** `performance.now()` when it became idle, and when it expires; written by idle-connections.ts. */
  idleSince = 0
  idleUntil = 0
  /** `performance.now()` after which it carries no further request. */
  readonly usableUntil = performance.now() + LIFE_MS * (1 - Math.random() / 10)
  /** True while it rests; see `REST_MS`. */
  rests = false
  /** True if it has carried an upload; see `readAfterFailedWrites`. */
  #readsOn = false

  constructor(socket: Socket, target: Address, owner: UpstreamRequest) {
    this.socket = socket
    this.target = target
    this.owner = owner
    connectionsBySocket.set(socket, this)
    socket.on('data', () => this.#onData())
  }

  /** True if it may carry a request (to `address`, if given) that needs a socket idle for less than `maxMs`. */
  isUsable(maxMs: number, address = this.target): boolean {
    return (
      this.target === address &&
      performance.now() < Math.min(this.idleUntil, this.idleSince + maxMs) &&
      this.socket.writable &&
      !this.socket.readableEnded
    )
  }

  /** Sends a request over the socket. */
  assign(request: UpstreamRequest): void {
    this.owner = request
    if (request.streamed && !this.#readsOn) {
      this.#readsOn = true
      readAfterFailedWrites(this.socket, () => this.owner?.streamed === true)
    }
    request.address = this.target
    request.stage = 'response'
    request.clientRequest!.onSocket(this.socket)
  }

  #onData(): void {
    const { owner } = this
    // Bytes behind a complete response would be parsed as the response to the next request.
    if (owner === undefined) this.socket.destroy()
    else if (owner.isAnswered) owner.clientRequest!.shouldKeepAlive = false
  }
}
