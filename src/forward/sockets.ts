import type { Agent, ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { createShares } from '../shares.ts'

export interface SocketsOptions {
  readonly addresses: Addresses
  readonly connect: Connect
  /** Does that speak TLS? */
  readonly secure: boolean
  readonly max: number
}

/** A request that is to have a socket. */
export interface Claim {
  readonly request: ClientRequest
  /** In whose share it is counted. */
  readonly caller: string
  /** May its socket have been used before? `surely`: only where the upstream is sure to keep it, as for what cannot be sent twice. */
  readonly reuse: 'freely' | 'surely' | 'never'
  /** Is its body still coming? */
  uploading: boolean
  /** Does it have one, or is one being opened for it? */
  holds: boolean
  /** Told in place of a socket when too many requests wait for one. */
  onFull(): void
  /** Told in place of a socket when no address can be reached: nothing was sent. */
  onUnreachable(failure: Error): void
}

/** The sockets to one upstream: kept alive, bounded in number and for each caller, at each address the one used last taken first. */
export interface Sockets {
  /** For `http.request`; it tells `onRequest` of each request, which gets no socket before `take`. */
  readonly agent: Agent
  onRequest: (request: ClientRequest) => void
  /** Gives a request a connected socket, at once or when one is free; a request that was destroyed meanwhile gets none. */
  take(claim: Claim): void
  /** Its body is whole. */
  uploaded(claim: Claim): void
  /** Where the request was sent; undefined before. */
  addressOf(request: ClientRequest): Address | undefined
  /** Keeps no idle socket to an address. */
  leave(origin: string): void
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/** A server that does not say how long it keeps an idle socket is taken to keep it for this long, as Node.js (5 s) and others do. */
const IDLE_MS = 4000
/** For this long any server keeps it (gunicorn: 2 s); beyond, nothing is sent there that cannot be sent again. */
const SURE_MS = 1000
const SWEEP_MS = 1000
/** Places to wait for each socket: with 256 of them, one client may send all that its limit of 1000 allows at once. */
const PLACES = 8

interface PooledSocket extends Socket {
  to: Address
  claim: Claim | undefined
  /** Is its place another's already? */
  dropped?: boolean
  /** `performance.now()` until which it may be used again, and surely so; undefined while it is in use. */
  idleUntil?: number | undefined
  sureUntil?: number
  _httpMessage?: (ClientRequest & { res?: IncomingMessage; shouldKeepAlive?: boolean }) | null
}

/**
 * `http.Agent` works out a pool's name and merges options for every request; with one upstream there is nothing to work out.
 * One caller has at most half of the sockets, and half of the places to wait; requests whose body is still coming have at most
 * half of the sockets together, and one caller half of those.
 */
export function createSockets({ addresses, connect, secure, max }: SocketsOptions): Sockets {
  const half = Math.ceil(max / 2)
  const held = createShares(max, half)
  const uploads = createShares(half, Math.ceil(half / 2))
  const places = createShares(PLACES * max, PLACES * half)
  const part = Math.max(1, Math.floor(max / addresses.all.length))
  const idle: PooledSocket[] = []
  const waiting: Claim[] = []
  let open = 0
  let closed = false

  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) if (socket.idleUntil! <= now) socket.destroy()
  }, SWEEP_MS).unref()

  /** Gives it a socket, or opens one; false where it must wait. */
  function begin(claim: Claim): boolean {
    const { caller, uploading, reuse, request } = claim
    if (idle.length === 0 && open >= max) return false
    if (!held.free(caller) || (uploading && !uploads.free(caller))) return false
    const address = addresses.next()!
    let socket = takeIdle(reuse, address)
    if (socket === undefined && open >= max) {
      // One to another address will do, where this one has its part already; else the one idle for longest makes room.
      if (address.sockets >= part) socket = takeIdle(reuse)
      if (socket === undefined && open >= max) drop(idle.shift()!)
    }
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
    open++
    address.sockets++
    const socket = connect(address, (failure) => {
      if (failure === undefined) {
        established(socket)
        if (claim.request.destroyed) release(socket)
        else give(claim, socket)
        return
      }
      open--
      address.sockets--
      addresses.failed(address, failure.message)
      const attempted = [...tried, address]
      const other = claim.request.destroyed ? undefined : addresses.next(attempted)
      if (other !== undefined) {
        dial(claim, other, attempted)
        return
      }
      letGo(claim)
      if (!claim.request.destroyed) claim.onUnreachable(failure)
      serveWaiting()
    }) as PooledSocket
    socket.to = address
    socket.claim = claim
  }

  function established(socket: PooledSocket): void {
    // Bytes that nobody asked for would be read as the answer to the next request.
    socket.on('data', () => {
      if (socket.idleUntil !== undefined) socket.destroy()
    })
    socket.on('free', () => release(socket))
    socket.once('close', () => {
      if (!socket.dropped) {
        open--
        socket.to.sockets--
      }
      if (socket.idleUntil !== undefined) forgetIdle(socket)
      letGo(socket.claim)
      serveWaiting()
    })
  }

  function give(claim: Claim, socket: PooledSocket): void {
    socket.claim = claim
    socket.idleUntil = undefined
    claim.request.onSocket(socket)
  }

  function release(socket: PooledSocket): void {
    letGo(socket.claim)
    socket.claim = undefined
    const last = socket._httpMessage
    if (!socket.writable || closed || last?.shouldKeepAlive === false) {
      socket.destroy()
      return
    }
    const now = performance.now()
    const announcedMs = last?.res && announcedBy(last.res)
    socket._httpMessage = null
    socket.idleUntil = now + Math.min(IDLE_MS, announcedMs ?? IDLE_MS)
    socket.sureUntil = now + (announcedMs ?? SURE_MS)
    idle.push(socket)
    serveWaiting()
  }

  /** Of one address, or of any; none that a request of this kind may not use, and the stale ones go. */
  function takeIdle(reuse: Claim['reuse'], address?: Address): PooledSocket | undefined {
    if (reuse === 'never') return undefined
    const now = performance.now()
    for (let i = idle.length - 1; i >= 0; i--) {
      const socket = idle[i]!
      if (address !== undefined && socket.to !== address) continue
      const fit = socket.writable && !socket.readableEnded && socket.idleUntil! > now
      if (fit && reuse === 'surely' && socket.sureUntil! <= now) continue
      if (i === idle.length - 1) idle.pop()
      else idle.splice(i, 1)
      if (fit) return socket
      drop(socket)
    }
    return undefined
  }

  /** Closes an idle one, and gives its place up at once. */
  function drop(socket: PooledSocket): void {
    open--
    socket.to.sockets--
    socket.dropped = true
    socket.destroy()
  }

  function forgetIdle(socket: PooledSocket): void {
    const at = idle.indexOf(socket)
    if (at !== -1) idle.splice(at, 1)
  }

  /** In their order, but for those whose callers have their share already. */
  function serveWaiting(): void {
    for (let i = 0; i < waiting.length;) {
      if (idle.length === 0 && open >= max) return
      if (waiting[i]!.request.destroyed || begin(waiting[i]!)) endWait(i)
      else i++
    }
  }

  function endWait(at: number): void {
    const [claim] = waiting.splice(at, 1)
    places.giveBack(claim!.caller)
  }

  /** Those who left while they waited give their places back. */
  function hasPlace(caller: string): boolean {
    if (places.free(caller)) return true
    for (let i = waiting.length - 1; i >= 0; i--) if (waiting[i]!.request.destroyed) endWait(i)
    return places.free(caller)
  }

  const sockets: Sockets = {
    onRequest: ignore,
    agent: {
      protocol: secure ? 'https:' : 'http:',
      defaultPort: secure ? 443 : 80,
      keepAlive: true,
      maxSockets: max,
      addRequest: (request: ClientRequest) => sockets.onRequest(request),
    } as unknown as Agent,
    take(claim) {
      if (begin(claim)) return
      if (!hasPlace(claim.caller)) {
        claim.onFull()
        return
      }
      places.take(claim.caller)
      waiting.push(claim)
    },
    uploaded(claim) {
      if (!claim.uploading) return
      if (claim.holds) uploads.giveBack(claim.caller)
      claim.uploading = false
      serveWaiting()
    },
    addressOf: (request) => (request.socket as PooledSocket | null)?.to,
    leave(origin) {
      for (const socket of idle) if (socket.to.origin === origin) socket.destroy()
    },
    close() {
      closed = true
      clearInterval(sweep)
      for (const socket of idle) socket.destroy()
    },
  }
  return sockets
}

/**
 * How long an upstream says it keeps an idle socket, less the time for the way there: `Keep-Alive: timeout=5`
 * (RFC 2068 section 19.7.1.1) is in seconds.
 */
function announcedBy(answer: IncomingMessage): number | undefined {
  const hint = answer.headers['keep-alive']
  const seconds = hint === undefined ? undefined : /timeout=(\d+)/.exec(String(hint))?.[1]
  if (seconds === undefined) return undefined
  const ms = Number(seconds) * 1000
  return Math.max(ms - 1000, ms / 2)
}

function ignore(): void {}
