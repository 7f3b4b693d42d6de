import type { ClientRequest } from 'node:http'
import type { Socket } from 'node:net'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import type { UpstreamRequest } from './request.ts'

export interface PooledSocket extends Socket {
  target: Address
  owner: UpstreamRequest | undefined
  /** True once its slot was released, perhaps ahead of its `close`. */
  released?: boolean
  /** `performance.now()` until which it may be used again; undefined while it is in use. */
  idleUntil?: number | undefined
  /** `performance.now()` when it became idle, and how long it had been when it was used again. */
  idleSince: number
  idleMs: number
  /** How long the upstream announced, in its last answer, that it keeps an idle socket. */
  announcedMs?: number | undefined
  _httpMessage?: (ClientRequest & { shouldKeepAlive?: boolean }) | null
}

/** Which idle sockets a request may use: `fresh` are those that the upstream surely keeps, for what cannot be sent twice. */
export type Reuse = 'any' | 'fresh' | 'new'

/** How long a server that announces nothing is assumed to keep an idle socket; Node.js: 5 s. */
const IDLE_MS = 4000
/** Any server keeps an idle socket this long (gunicorn: 2 s), but for those that were seen to close sooner. */
const FRESH_MS = 500
const SWEEP_MS = 1000

/** The open sockets of one upstream, `max` at most; at each address the one used last is taken first. */
export function createPool(
  { all }: Addresses,
  connect: Connect,
  max: number,
  onFree: (socket: PooledSocket) => void,
  /** Called when a socket that was connected is closed, and its slot free. */
  onClose: (socket: PooledSocket) => void,
) {
  /** The part of a full pool that each address has. */
  const part = Math.max(1, Math.floor(max / all.length))
  /** In the order in which they became idle. */
  const idle: PooledSocket[] = []
  let openCount = 0
  let closed = false
  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) {
      if (socket.idleUntil! > now) continue
      socket.target.keepAlive.record(Number.POSITIVE_INFINITY)
      socket.destroy()
    }
  }, SWEEP_MS).unref()

  /** True if there is neither an idle socket nor a slot for another. */
  const isFull = (): boolean => idle.length === 0 && openCount >= max

  /** Takes an idle socket, of `address` if possible; undefined if one is to be opened, for which there is a slot now. */
  function take(reuse: Reuse, address: Address): PooledSocket | undefined {
    const socket = takeIdle(reuse, address)
    if (socket !== undefined || openCount < max) return socket
    // An address that has its part already uses another's; else the socket idle for longest makes room.
    const other = address.sockets >= part ? takeIdle(reuse) : undefined
    if (other === undefined && openCount >= max) drop(idle.shift()!)
    return other
  }

  function open(address: Address, done: Parameters<Connect>[1]): PooledSocket {
    openCount++
    address.sockets++
    const socket = connect(address, (failure, again) => {
      if (failure === undefined) watch(socket)
      else release(socket)
      done(failure, again)
    }) as PooledSocket
    socket.target = address
    return socket
  }

  /** Keeps a socket idle; returns false and closes it if it cannot be used again. */
  function keep(socket: PooledSocket): boolean {
    if (!socket.writable || closed || socket._httpMessage?.shouldKeepAlive === false) {
      socket.destroy()
      return false
    }
    const now = performance.now()
    socket._httpMessage = null
    socket.idleUntil = now + Math.min(IDLE_MS, socket.announcedMs ?? IDLE_MS)
    socket.idleSince = now
    idle.push(socket)
    return true
  }

  function evict(origin: string): void {
    for (const socket of idle) if (socket.target.origin === origin) socket.destroy()
  }

  /** Closes the idle sockets, and the others when their requests are over. */
  function close(): void {
    closed = true
    clearInterval(sweep)
    for (const socket of idle) socket.destroy()
  }

  function watch(socket: PooledSocket): void {
    // Unsolicited bytes would be read as the answer to the next request.
    socket.on('data', () => {
      if (socket.idleUntil !== undefined) socket.destroy(new Error('the upstream sent bytes unasked'))
    })
    socket.on('free', () => onFree(socket))
    socket.once('close', () => {
      release(socket)
      const now = performance.now()
      const isEarly = now < (socket.idleUntil ?? 0) && (socket.readableEnded || socket.errored !== null)
      if (isEarly) socket.target.keepAlive.record(now - socket.idleSince)
      const at = idle.indexOf(socket)
      if (at !== -1) idle.splice(at, 1)
      onClose(socket)
    })
  }

  /** Pops the idle socket used last (of `address`, if given) that `reuse` allows; closes expired ones on the way. */
  function takeIdle(reuse: Reuse, address?: Address): PooledSocket | undefined {
    if (reuse === 'new') return undefined
    const now = performance.now()
    for (let i = idle.length - 1; i >= 0; i--) {
      const socket = idle[i]!
      if (address !== undefined && socket.target !== address) continue
      const usable = socket.writable && !socket.readableEnded && socket.idleUntil! > now
      const idleMs = now - socket.idleSince
      // Half of its life, since the upstream counts from another instant, and its FIN takes time to arrive.
      const freshMs = Math.min(socket.announcedMs ?? FRESH_MS, socket.target.keepAlive.ms() / 2)
      if (usable && reuse === 'fresh' && idleMs >= freshMs) continue
      if (i === idle.length - 1) idle.pop()
      else idle.splice(i, 1)
      if (usable) {
        socket.idleUntil = undefined
        socket.idleMs = idleMs
        return socket
      }
      drop(socket)
    }
    return undefined
  }

  /** Closes an idle socket and releases its slot at once. */
  function drop(socket: PooledSocket): void {
    release(socket)
    socket.destroy()
  }

  function release(socket: PooledSocket): void {
    if (socket.released === true) return
    socket.released = true
    openCount--
    socket.target.sockets--
  }

  return { isFull, take, open, keep, evict, close, size: () => openCount }
}
