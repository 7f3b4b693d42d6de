import type { ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Address, Addresses } from './addresses.ts'
import type { Connect } from './connect.ts'
import { announcedBy } from './keep-alive.ts'

/** One of an upstream's sockets. */
export interface PooledSocket extends Socket {
  to: Address
  /** Is its place another's already? */
  dropped?: boolean
  /** `performance.now()` until which it may be used again; undefined while it is in use. */
  idleUntil?: number | undefined
  /** Since when it is idle, or was before it was used again. */
  idleSince?: number
  /** For how long it may then be used for what cannot be sent twice. */
  sureMs?: number
  /** For how long it had been idle when it was used again. */
  idleMs?: number
  _httpMessage?: (ClientRequest & { res?: IncomingMessage; shouldKeepAlive?: boolean }) | null
}

/** May a socket have been used before? `surely`: only where the upstream is sure to keep it, as for what cannot be sent twice. */
export type Reuse = 'freely' | 'surely' | 'never'

export interface PoolOptions<Own extends PooledSocket> {
  readonly addresses: Addresses
  readonly connect: Connect
  /** Most sockets that are open at a time. */
  readonly max: number
  /** A request is over with a socket. */
  onFree(socket: Own): void
  /** A socket that was connected is closed, and its place free. */
  onClose(socket: Own): void
}

/** The sockets of one upstream that are open, bounded in number; those that are idle wait for another request. */
export interface Pool<Own extends PooledSocket> {
  /** Is there neither an idle one nor room for another? */
  isFull(): boolean
  /** Takes an idle one, of this address if it can be; undefined where there is room now to open one to it. */
  take(reuse: Reuse, address: Address): Own | undefined
  /** Opens one, and tells when it is connected, or why it never will be. */
  open(address: Address, done: Parameters<Connect>[1]): Own
  /** Keeps one idle; false where it cannot be used again, and is closed. */
  keep(socket: Own): boolean
  /** It was closed unanswered when it was used again. */
  died(socket: PooledSocket): void
  /** Keeps no idle one of an address. */
  leave(origin: string): void
  /** Keeps none any more. */
  close(): void
}

/** A server that does not say how long it keeps an idle socket is taken to keep it for this long, as Node.js (5 s) and others do. */
const IDLE_MS = 4000
/** For this long any server keeps it (gunicorn: 2 s), but for those that were seen to close sooner; beyond, nothing is sent there that cannot be sent again. */
const SURE_MS = 500
const SWEEP_MS = 1000

/** At each address the socket used last is taken first; every address has its part of a full pool. */
export function createPool<Own extends PooledSocket>({
  addresses,
  connect,
  max,
  onFree,
  onClose,
}: PoolOptions<Own>): Pool<Own> {
  const part = Math.max(1, Math.floor(max / addresses.all.length))
  const idle: Own[] = []
  let open = 0
  let closed = false

  const sweep = setInterval(() => {
    const now = performance.now()
    for (const socket of idle) {
      if (socket.idleUntil! > now) continue
      socket.to.lifetime.seen(Number.POSITIVE_INFINITY)
      socket.destroy()
    }
  }, SWEEP_MS).unref()

  function established(socket: Own): void {
    // Bytes that nobody asked for would be read as the answer to the next request.
    socket.on('data', () => {
      if (socket.idleUntil === undefined) return
      closedIdle(socket)
      socket.destroy()
    })
    socket.on('free', () => onFree(socket))
    socket.once('close', () => {
      if (socket.dropped !== true) giveBack(socket.to)
      if (socket.idleUntil !== undefined) {
        if (socket.readableEnded || socket.errored) closedIdle(socket)
        forgetIdle(socket)
      }
      onClose(socket)
    })
  }

  /** Its far end gave it up, unless for the reason that it had announced. */
  function closedIdle({ to, idleSince, idleUntil }: Own): void {
    const now = performance.now()
    if (now < idleUntil!) to.lifetime.seen(now - idleSince!)
  }

  function giveBack(address: Address): void {
    open--
    address.sockets--
  }

  /** Of one address, or of any; none that a request of this kind may not use, and the stale ones go. */
  function takeIdle(reuse: Reuse, address?: Address): Own | undefined {
    if (reuse === 'never') return undefined
    const now = performance.now()
    for (let i = idle.length - 1; i >= 0; i--) {
      const socket = idle[i]!
      if (address !== undefined && socket.to !== address) continue
      const fit = socket.writable && !socket.readableEnded && socket.idleUntil! > now
      const idleMs = now - socket.idleSince!
      // Half of its life, since the far end counts from another instant, and what it says takes its time.
      if (fit && reuse === 'surely' && idleMs >= Math.min(socket.sureMs!, socket.to.lifetime.leastMs() / 2))
        continue
      if (i === idle.length - 1) idle.pop()
      else idle.splice(i, 1)
      if (fit) {
        socket.idleUntil = undefined
        socket.idleMs = idleMs
        return socket
      }
      drop(socket)
    }
    return undefined
  }

  /** Closes an idle one, and gives its place up at once. */
  function drop(socket: Own): void {
    giveBack(socket.to)
    socket.dropped = true
    socket.destroy()
  }

  function forgetIdle(socket: Own): void {
    const at = idle.indexOf(socket)
    if (at !== -1) idle.splice(at, 1)
  }

  return {
    isFull: () => idle.length === 0 && open >= max,
    take(reuse, address) {
      const socket = takeIdle(reuse, address)
      if (socket !== undefined || open < max) return socket
      // One to another address will do, where this one has its part already; else the one idle for longest makes room.
      const other = address.sockets >= part ? takeIdle(reuse) : undefined
      if (other === undefined && open >= max) drop(idle.shift()!)
      return other
    },
    open(address, done) {
      open++
      address.sockets++
      const socket = connect(address, (failure, again) => {
        if (failure === undefined) established(socket)
        else giveBack(address)
        done(failure, again)
      }) as Own
      socket.to = address
      return socket
    },
    keep(socket) {
      const last = socket._httpMessage
      if (!socket.writable || closed || last?.shouldKeepAlive === false) {
        socket.destroy()
        return false
      }
      const now = performance.now()
      const announcedMs = last?.res && announcedBy(last.res)
      socket._httpMessage = null
      socket.idleUntil = now + Math.min(IDLE_MS, announcedMs ?? IDLE_MS)
      socket.idleSince = now
      socket.sureMs = announcedMs ?? SURE_MS
      idle.push(socket)
      return true
    },
    died: ({ to, idleMs }) => to.lifetime.seen(idleMs!),
    leave(origin) {
      for (const socket of idle) if (socket.to.origin === origin) socket.destroy()
    },
    close() {
      closed = true
      clearInterval(sweep)
      for (const socket of idle) socket.destroy()
    },
  }
}
