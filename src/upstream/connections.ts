import type { ClientRequest } from 'node:http'
import { createShares } from '../limit/concurrency.ts'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { createLine } from './wait-queue.ts'
import { createPool, type PooledSocket, type Reuse } from './pool.ts'

export interface SocketsOptions {
  readonly addresses: Addresses
  readonly connect: Connect
  readonly max: number
}

/** A request that is to have a socket. */
export interface Claim {
  readonly request: ClientRequest
  /** In whose share it is counted. */
  readonly caller: string
  readonly reuse: Reuse
  /** Is its body still coming? */
  uploading: boolean
  /** Does it have one, or is one being opened for it? */
  holds: boolean
  /** Told in place of a socket when too many requests wait for one. */
  onFull(): void
  /** Told in place of a socket when no address can be reached: nothing was sent. */
  onUnreachable(failure: Error): void
}

/** The sockets to one upstream: kept alive, bounded in number and for each caller. */
export interface Sockets {
  /** Gives a request a connected socket, at once or when one is free; a request that was destroyed meanwhile gets none. */
  take(claim: Claim): void
  /** Its body is whole. */
  uploaded(claim: Claim): void
  /** Where the request was sent; undefined before. */
  addressOf(request: ClientRequest): Address | undefined
  /** A socket that was used before died under this request, unanswered. */
  died(request: ClientRequest): void
  /** Keeps no idle socket to an address. */
  leave(origin: string): void
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/** Places to wait for each socket: with 256 of them, one client may send all that its limit of 1000 allows at once. */
const PLACES = 8

interface ClaimedSocket extends PooledSocket {
  claim: Claim | undefined
}

/**
 * One caller has at most half of the sockets, and half of the places to wait; requests whose body is still coming have at most
 * half of the sockets together, and one caller half of those.
 */
export function createSockets({ addresses, connect, max }: SocketsOptions): Sockets {
  const half = Math.ceil(max / 2)
  const held = createShares(max, half)
  const uploads = createShares(half, Math.ceil(half / 2))
  const pool = createPool<ClaimedSocket>({
    addresses,
    connect,
    max,
    onFree: release,
    onClose({ claim }) {
      letGo(claim)
      line.serve()
    },
  })
  const line = createLine(PLACES * max, PLACES * half, begin, pool.isFull)

  /** Gives it a socket, or opens one; false where it must wait. */
  function begin(claim: Claim): boolean {
    const { caller, uploading, reuse, request } = claim
    if (pool.isFull() || !held.free(caller) || (uploading && !uploads.free(caller))) return false
    const address = addresses.next()!
    const socket = pool.take(reuse, address)
    claim.holds = true
    held.take(caller)
    if (uploading) uploads.take(caller)
    if (socket === undefined) dial(claim, address)
    else {
      request.reusedSocket = true
      give(claim, socket)
    }
    return true
  }

  function letGo(claim: Claim | undefined): void {
    if (claim?.holds !== true) return
    claim.holds = false
    held.giveBack(claim.caller)
    if (claim.uploading) uploads.giveBack(claim.caller)
  }

  /** Goes from address to address until one takes the connection: a request without a socket was not sent anywhere yet. */
  function dial(claim: Claim, address: Address, tried: readonly Address[] = []): void {
    const socket = pool.open(address, (failure, again) => {
      if (failure === undefined) {
        if (claim.request.destroyed) release(socket)
        else give(claim, socket)
        return
      }
      if (!again) addresses.failed(address, failure.message)
      const attempted = again ? tried : [...tried, address]
      const next = again ? address : addresses.next(attempted)
      if (next !== undefined && !claim.request.destroyed) {
        dial(claim, next, attempted)
        return
      }
      letGo(claim)
      if (!claim.request.destroyed) claim.onUnreachable(failure)
      line.serve()
    })
    socket.claim = claim
  }

  function give(claim: Claim, socket: ClaimedSocket): void {
    socket.claim = claim
    claim.request.onSocket(socket)
  }

  function release(socket: ClaimedSocket): void {
    letGo(socket.claim)
    socket.claim = undefined
    if (pool.keep(socket)) line.serve()
  }

  return {
    take(claim) {
      if (!begin(claim) && !line.join(claim)) claim.onFull()
    },
    uploaded(claim) {
      if (!claim.uploading) return
      if (claim.holds) uploads.giveBack(claim.caller)
      claim.uploading = false
      line.serve()
    },
    addressOf: (request) => (request.socket as PooledSocket | null)?.to,
    died: (request) => pool.died(request.socket as PooledSocket),
    leave: pool.leave,
    close: pool.close,
  }
}
