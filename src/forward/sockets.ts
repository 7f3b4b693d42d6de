import type { Agent, ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { ConnectionOptions } from 'node:tls'
import type { Address, Addresses } from './addresses.ts'
import { connect } from './connect.ts'

export interface SocketsOptions {
  readonly addresses: Addresses
  /** How TLS is spoken to all of them, if so. */
  readonly secure: ConnectionOptions | undefined
  readonly max: number
  readonly connectTimeoutMs: number
}

/** How an upstream request is to be given its socket. */
export interface Wish {
  /** Must nobody have used the socket before? */
  readonly fresh: boolean
  /** Told in place of a socket when too many requests wait for one. */
  onFull(): void
  /** Told in place of a socket when no address can be reached: nothing was sent. */
  onUnreachable(failure: Error): void
}

/** The sockets to one upstream: kept alive, bounded in number, at each address the one used last taken first. */
export interface Sockets {
  /** For `http.request`; it tells `onRequest` of each request, which gets no socket before `take`. */
  readonly agent: Agent
  onRequest: (request: ClientRequest) => void
  /** Gives a request a connected socket, at once or when one is free; a request that was destroyed meanwhile gets none. */
  take(request: ClientRequest, wish: Wish): void
  /** Does it wait for a socket to be free? */
  waits(request: ClientRequest): boolean
  /** Where the request was sent; undefined before. */
  addressOf(request: ClientRequest): Address | undefined
  /** Keeps no idle socket to an address. */
  leave(origin: string): void
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/** An idle socket goes before common servers close it (Node: 5 s), so that no request is sent into a closing one. */
const IDLE_MS = 4000
const SWEEP_MS = 1000
/** A server that announces when it closes idle sockets is believed, less this for the way there. */
const ON_THE_WAY_MS = 1000

interface PooledSocket extends Socket {
  to: Address
  /** `performance.now()` until which it may be used again; undefined while it is in use. */
  idleUntil?: number | undefined
  _httpMessage?: (ClientRequest & { res?: IncomingMessage; shouldKeepAlive?: boolean }) | null
}

interface Waiting {
  readonly request: ClientRequest
  readonly wish: Wish
}

/** `http.Agent` works out a pool's name and merges options for every request; with one upstream there is nothing to work out. */
export function createSockets({ addresses, secure, max, connectTimeoutMs }: SocketsOptions): Sockets {
  const idle: PooledSocket[] = []
  let waiting: Waiting[] = []
  let open = 0
  let closed = false

  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) if (socket.idleUntil! <= now) socket.destroy()
  }, SWEEP_MS).unref()

  /** Goes from address to address until one takes the connection: a request without a socket was not sent anywhere yet. */
  function dial(entry: Waiting, address: Address, tried: readonly Address[] = []): void {
    open++
    const socket = connect(address, secure, connectTimeoutMs, (failure) => {
      if (failure === undefined) {
        established(socket)
        if (entry.request.destroyed) release(socket)
        else give(entry.request, socket)
        return
      }
      open--
      const { request, wish } = entry
      addresses.failed(address, failure.message)
      const attempted = [...tried, address]
      const other = request.destroyed ? undefined : addresses.next(attempted)
      if (other !== undefined) {
        dial(entry, other, attempted)
        return
      }
      if (!request.destroyed) wish.onUnreachable(failure)
      serveNext()
    }) as PooledSocket
    socket.to = address
  }

  function established(socket: PooledSocket): void {
    // Bytes that nobody asked for would be read as the answer to the next request.
    socket.on('data', () => {
      if (socket.idleUntil !== undefined) socket.destroy()
    })
    socket.on('free', () => release(socket))
    socket.once('close', () => {
      open--
      forgetIdle(socket)
      serveNext()
    })
  }

  function give(request: ClientRequest, socket: PooledSocket): void {
    socket.idleUntil = undefined
    request.onSocket(socket)
  }

  /** A place is free for one more socket. */
  function serveNext(): void {
    const next = nextWaiting()
    if (next !== undefined) dial(next, addresses.next()!)
  }

  function release(socket: PooledSocket): void {
    const last = socket._httpMessage
    if (!socket.writable || closed || last?.shouldKeepAlive === false) {
      socket.destroy()
      return
    }
    const next = nextWaiting()
    if (next !== undefined) {
      next.request.reusedSocket = true
      give(next.request, socket)
      return
    }
    const idleMs = last?.res ? idleTime(last.res) : IDLE_MS
    if (idleMs <= 0) {
      socket.destroy()
      return
    }
    socket._httpMessage = null
    socket.idleUntil = performance.now() + idleMs
    idle.push(socket)
  }

  /** Of one address, or of any. */
  function takeIdle(address?: Address): PooledSocket | undefined {
    for (let i = idle.length - 1; i >= 0; i--) {
      const socket = idle[i]!
      if (address !== undefined && socket.to !== address) continue
      if (i === idle.length - 1) idle.pop()
      else idle.splice(i, 1)
      if (socket.writable && !socket.readableEnded && socket.idleUntil! > performance.now()) return socket
      socket.destroy()
    }
    return undefined
  }

  function forgetIdle(socket: PooledSocket): void {
    const at = socket.idleUntil === undefined ? -1 : idle.indexOf(socket)
    if (at !== -1) idle.splice(at, 1)
  }

  /** Those who left while they waited give their places back. */
  function hasPlace(): boolean {
    if (waiting.length >= max) waiting = waiting.filter(({ request }) => !request.destroyed)
    return waiting.length < max
  }

  function nextWaiting(): Waiting | undefined {
    for (let entry = waiting.shift(); entry !== undefined; entry = waiting.shift()) {
      if (!entry.request.destroyed) return entry
    }
    return undefined
  }

  const sockets: Sockets = {
    onRequest: ignore,
    agent: {
      protocol: secure !== undefined ? 'https:' : 'http:',
      defaultPort: secure !== undefined ? 443 : 80,
      keepAlive: true,
      maxSockets: max,
      addRequest: (request: ClientRequest) => sockets.onRequest(request),
    } as unknown as Agent,
    take(request, wish) {
      const address = addresses.next()!
      let socket = wish.fresh ? undefined : takeIdle(address)
      // Where no more may be opened, one to another address will do.
      if (socket === undefined && open >= max && !wish.fresh) socket = takeIdle()
      if (socket !== undefined) {
        request.reusedSocket = true
        give(request, socket)
      } else if (open < max) dial({ request, wish }, address)
      else if (hasPlace()) waiting.push({ request, wish })
      else wish.onFull()
    },
    waits: (request) => waiting.some((entry) => entry.request === request),
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

/** How long a socket may stay idle after an answer; its `Keep-Alive: timeout=5` (RFC 2068 section 19.7.1.1) is in seconds. */
function idleTime(answer: IncomingMessage): number {
  const hint = answer.headers['keep-alive']
  const seconds = hint === undefined ? undefined : /timeout=(\d+)/.exec(String(hint))?.[1]
  return seconds === undefined ? IDLE_MS : Math.min(IDLE_MS, Number(seconds) * 1000 - ON_THE_WAY_MS)
}

function ignore(): void {}
