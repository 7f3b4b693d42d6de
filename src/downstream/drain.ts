import type { Server } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate as nextTick } from 'node:timers/promises'
import { Failure, serviceUnavailable } from '../errors.ts'
import { type Pipelining, responseOf } from './pipelining.ts'

/** What Node does not know of a server. */
export interface Load {
  /** Every socket, also those that carry no HTTP yet, or no more. */
  readonly open: ReadonlySet<Socket>
  /** Those on which no request has come yet: Node does not count them among the idle ones. */
  readonly idle: Set<Socket>
  /** Those that carry HTTP: a TLS socket is another one than the socket below it. */
  readonly http: Set<Socket>
  readonly pipelining: Pipelining
}

/** The load of each server that was made by `createListener`. */
export const loads = new WeakMap<Server, Load>()

const IDLE_CHECK_MS = 50
/** Iterations of the event loop that requests which were cut may take to end. */
const MAX_LAST_TICKS = 100
/** Most iterations to wait at a port to which connections come all the time. */
const MAX_ACCEPT_TICKS = 100

/**
 * Ends a server: no new sockets, answers under way get `withinMs`, then everything is closed; returns how many requests were cut.
 * Idle sockets stay for `idleMs`, since closing one may cross a request on its way.
 */
export async function drain(server: Server, withinMs: number, idleMs = 0): Promise<number> {
  const load = loads.get(server)
  let cut = 0
  const idleAt = performance.now() + idleMs
  await portEmptied(server)
  // `http.Server.close` would close the idle sockets at once.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  const closeIdle = (): void => {
    if (performance.now() < idleAt) return
    server.closeIdleConnections()
    // Also those of TLS that never began a handshake.
    for (const sockets of [load?.idle, load?.open])
      for (const socket of sockets ?? []) if (socket.bytesRead === 0) socket.destroy()
  }
  const idle = setInterval(closeIdle, IDLE_CHECK_MS)
  const hard = setTimeout(() => {
    cut = load?.pipelining.requests() ?? 0
    const reason = serviceUnavailable('The gateway ended before the answer was whole.')
    for (const socket of load?.http ?? []) responseOf(socket)?.destroy(new Failure(reason))
    for (const socket of load?.open ?? []) socket.destroy()
    server.closeAllConnections()
  }, withinMs)
  closeIdle()
  await closed
  // Each request that was cut still writes its log line.
  for (let i = 0; i < MAX_LAST_TICKS && (load?.pipelining.requests() ?? 0) > 0; i++) await nextTick()
  clearInterval(idle)
  clearTimeout(hard)
  return cut
}

/** Waits for an iteration of the event loop in which no connection came: a closing port would reset those already accepted by the system. */
async function portEmptied(server: Server): Promise<void> {
  let came = true
  const note = (): void => void (came = true)
  server.on('connection', note)
  await nextTick()
  for (let i = 0; i < MAX_ACCEPT_TICKS && came; i++) {
    came = false
    await nextTick()
  }
  server.off('connection', note)
}
