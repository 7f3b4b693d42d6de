import type { Socket } from 'node:net'
import { detachMessage, messageOf } from '../runtime/node-http.ts'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'

export interface PooledSocket<Owner = unknown> extends Socket {
  target: Address
  owner: Owner | undefined
  /** True once its slot was released, possibly before its `close`. */
  released?: boolean
  /** `performance.now()` until which it may be used again; undefined while it is in use. */
  idleUntil?: number | undefined
  /** `performance.now()` when it became idle. */
  idleSince: number
  /** Milliseconds that it was idle before its current use. */
  idleMs: number
  /** Lifetime of an idle socket that the upstream announced in its last response. */
  announcedMs?: number | undefined
}

/** Which idle sockets a request may use: `fresh` are those that the upstream has not closed yet, for requests that cannot be sent twice. */
export type Reuse = 'any' | 'fresh' | 'new'

/** Assumed lifetime of an idle socket if the server announces none; Node.js: 5 s. */
const IDLE_MS = 4000
/** Every server keeps an idle socket this long (gunicorn: 2 s), except those that were seen to close sooner. */
const FRESH_MS = 500
const SWEEP_MS = 1000

/**
 * Creates the pool of an upstream's open sockets, at most `max`; of each address, the socket used last is used first. Calls `onFree`
 * for a socket whose request is over, and `onClose` for a connected socket that was closed, when its slot is free.
 */
export function createPool<Owner>(
  { all }: Addresses,
  connect: Connect,
  max: number,
  onFree: (socket: PooledSocket<Owner>) => void,
  onClose: (socket: PooledSocket<Owner>) => void,
) {
  const socketsPerAddress = Math.max(1, Math.floor(max / all.length))
  /** Idle sockets; the one that has been idle longest is first. */
  const idle: PooledSocket<Owner>[] = []
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

  /** Returns an idle socket, of `address` if possible; undefined if the caller must open one, for which there is a slot. */
  function take(reuse: Reuse, address: Address): PooledSocket<Owner> | undefined {
    const socket = takeIdle(reuse, address)
    if (socket !== undefined || openCount < max) return socket
    // An address that has its share of sockets uses one of another address. Otherwise, close the socket that has been idle longest.
    const other = address.sockets >= socketsPerAddress ? takeIdle(reuse) : undefined
    if (other === undefined && openCount >= max) drop(idle.shift()!)
    return other
  }

  function open(address: Address, done: Parameters<Connect>[1]): PooledSocket<Owner> {
    openCount++
    address.sockets++
    const socket = connect(address, (failure, again) => {
      if (failure === undefined) watch(socket)
      else release(socket)
      done(failure, again)
    }) as PooledSocket<Owner>
    socket.target = address
    return socket
  }

  /** Keeps a socket idle; returns false and closes it if it cannot be used again. */
  function keep(socket: PooledSocket<Owner>): boolean {
    if (!socket.writable || closed || messageOf(socket)?.shouldKeepAlive === false) {
      socket.destroy()
      return false
    }
    detachMessage(socket)
    const now = performance.now()
    socket.idleUntil = now + Math.min(IDLE_MS, socket.announcedMs ?? IDLE_MS)
    socket.idleSince = now
    idle.push(socket)
    return true
  }

  function evict(origin: string): void {
    for (const socket of idle) if (socket.target.origin === origin) socket.destroy()
  }

  /** Closes the idle sockets now, and the others when their requests are over. */
  function close(): void {
    closed = true
    clearInterval(sweep)
    for (const socket of idle) socket.destroy()
  }

  function watch(socket: PooledSocket<Owner>): void {
    // Unsolicited bytes would be parsed as the response to the next request.
    socket.on('data', () => {
      if (socket.idleUntil !== undefined)
        socket.destroy(new Error('the upstream sent bytes without a request'))
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

  /** Removes the idle socket used last (of `address`, if given) that `reuse` allows; closes expired ones before it. */
  function takeIdle(reuse: Reuse, address?: Address): PooledSocket<Owner> | undefined {
    if (reuse === 'new') return undefined
    const now = performance.now()
    for (let i = idle.length - 1; i >= 0; i--) {
      const socket = idle[i]!
      if (address !== undefined && socket.target !== address) continue
      const isUsable = socket.writable && !socket.readableEnded && socket.idleUntil! > now
      const idleMs = now - socket.idleSince
      // Half of its lifetime: the upstream counts from another instant, and its FIN takes time to arrive.
      const freshMs = Math.min(socket.announcedMs ?? FRESH_MS, socket.target.keepAlive.ms() / 2)
      if (isUsable && reuse === 'fresh' && idleMs >= freshMs) continue
      if (i === idle.length - 1) idle.pop()
      else idle.splice(i, 1)
      if (isUsable) {
        socket.idleUntil = undefined
        socket.idleMs = idleMs
        return socket
      }
      drop(socket)
    }
    return undefined
  }

  /** Closes an idle socket and releases its slot immediately. */
  function drop(socket: PooledSocket<Owner>): void {
    release(socket)
    socket.destroy()
  }

  function release(socket: PooledSocket<Owner>): void {
    if (socket.released === true) return
    socket.released = true
    openCount--
    socket.target.sockets--
  }

  return { isFull, take, open, keep, evict, close, size: () => openCount }
}
