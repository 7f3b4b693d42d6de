import type { Agent, ClientRequest, IncomingMessage } from 'node:http'
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

export interface SocketsOptions {
  /** `http:` or `https:` origin. */
  readonly origin: URL
  readonly max: number
  readonly connectTimeoutMs: number
}

/** How the next upstream request is to be given its socket. */
export interface Wish {
  /** Told of the request before it has a socket, and so before anything is sent. */
  onRequest(request: ClientRequest): void
  /** Told in place of a socket when too many requests wait for one. */
  onFull(): void
  /** Must nobody have used the socket before? */
  readonly fresh: boolean
}

/** The sockets to one upstream: kept alive, bounded in number, the one used last taken first. */
export interface Sockets {
  /** For `http.request`, which makes one request synchronously after each `wish`. */
  readonly agent: Agent
  wish: Wish
  /** Keeps no socket any more; requests under way end in peace. */
  close(): void
}

/** An idle socket goes before common servers close it (Node: 5 s), so that no request is sent into a closing one. */
const IDLE_MS = 4000
const SWEEP_MS = 1000
/** A server that announces when it closes idle sockets is believed, less this for the way there. */
const ON_THE_WAY_MS = 1000

interface PooledSocket extends Socket {
  /** `performance.now()` until which it may be used again; undefined while it is in use. */
  idleUntil?: number | undefined
  _httpMessage?: (ClientRequest & { res?: IncomingMessage; shouldKeepAlive?: boolean }) | null
}

/** `http.Agent` works out a pool's name and merges options for every request; with one origin there is nothing to work out. */
export function createSockets({ origin, max, connectTimeoutMs }: SocketsOptions): Sockets {
  const secure = origin.protocol === 'https:'
  const host = origin.hostname.replace(/^\[|\]$/g, '')
  const port = Number(origin.port) || (secure ? 443 : 80)
  const idle: PooledSocket[] = []
  let waiting: ClientRequest[] = []
  let open = 0
  let closed = false

  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) if (socket.idleUntil! <= now) socket.destroy()
  }, SWEEP_MS).unref()

  function connect(): PooledSocket {
    open++
    const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }
    const socket: PooledSocket = secure
      ? // Node's agent would take the name to verify from the caller's Host.
        connectTls({ ...options, servername: isIP(host) === 0 ? host : '', ALPNProtocols: ['http/1.1'] })
      : connectTcp(options)
    const timer = setTimeout(() => {
      socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`))
    }, connectTimeoutMs)
    socket.once(secure ? 'secureConnect' : 'connect', () => clearTimeout(timer))
    socket.on('error', ignore)
    // Bytes that nobody asked for would be read as the answer to the next request.
    socket.on('data', () => {
      if (socket.idleUntil !== undefined) socket.destroy()
    })
    socket.on('free', () => release(socket))
    socket.once('close', () => {
      clearTimeout(timer)
      open--
      forgetIdle(socket)
      const next = nextWaiting()
      if (next !== undefined) next.onSocket(connect())
    })
    return socket
  }

  function release(socket: PooledSocket): void {
    const last = socket._httpMessage
    if (!socket.writable || closed || last?.shouldKeepAlive === false) {
      socket.destroy()
      return
    }
    const next = nextWaiting()
    if (next !== undefined) {
      next.reusedSocket = true
      next.onSocket(socket)
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

  function takeIdle(): PooledSocket | undefined {
    for (let socket = idle.pop(); socket !== undefined; socket = idle.pop()) {
      if (socket.writable && !socket.readableEnded && socket.idleUntil! > performance.now()) {
        socket.idleUntil = undefined
        return socket
      }
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
    if (waiting.length >= max) waiting = waiting.filter((request) => !request.destroyed)
    return waiting.length < max
  }

  function nextWaiting(): ClientRequest | undefined {
    for (let request = waiting.shift(); request !== undefined; request = waiting.shift()) {
      if (!request.destroyed) return request
    }
    return undefined
  }

  const sockets: Sockets = {
    wish: { onRequest: ignore, onFull: ignore, fresh: false },
    agent: {
      protocol: origin.protocol,
      defaultPort: port,
      keepAlive: true,
      maxSockets: max,
      addRequest(request: ClientRequest) {
        const { onRequest, onFull, fresh } = sockets.wish
        onRequest(request)
        const socket = fresh ? undefined : takeIdle()
        if (socket !== undefined) {
          request.reusedSocket = true
          request.onSocket(socket)
        } else if (open < max) request.onSocket(connect())
        else if (hasPlace()) waiting.push(request)
        else onFull()
      },
    } as unknown as Agent,
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
