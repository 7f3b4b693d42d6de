import type { Server } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Failure, serviceUnavailable } from '../errors.ts'
import { type Turns, underWay } from './pipelining.ts'

/** What Node does not tell of a listener. */
export interface Load {
  /** Every socket, also those that are no HTTP yet, or no more. */
  readonly open: ReadonlySet<Socket>
  /** Those on which no request has come yet: Node does not count them among the idle ones. */
  readonly quiet: Set<Socket>
  /** Those that speak HTTP, of which a TLS socket is not the one that was opened. */
  readonly speaking: Set<Socket>
  readonly turns: Turns
}

/** Noted for those servers of which more is to be ended than Node knows. */
export const loads = new WeakMap<Server, Load>()

const IDLE_CHECK_MS = 50
/** Turns of the event loop that requests which were cut may take to end. */
const LAST_TURNS = 100
/** Most looks at a port to which somebody comes all the time. */
const MOST_LOOKS = 100

/**
 * Ends a server: no new sockets, answers under way get `withinMs`, then everything is closed; how many requests had to be cut.
 * Idle sockets stay for `idleMs`, since closing one may cross a request on its way.
 */
export async function drain(server: Server, withinMs: number, idleMs = 0): Promise<number> {
  let cut = 0
  const idleAt = performance.now() + idleMs
  await portEmptied(server)
  // `http.Server.close` would close the idle sockets at once.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  const load = loads.get(server)
  const closeIdle = (): void => {
    server.closeIdleConnections()
    for (const socket of load?.quiet ?? []) if (socket.bytesRead === 0) socket.destroy()
    // Those of TLS that never began a handshake.
    for (const socket of load?.open ?? []) if (socket.bytesRead === 0) socket.destroy()
  }
  const idle = setInterval(() => {
    if (performance.now() >= idleAt) closeIdle()
  }, IDLE_CHECK_MS)
  const hard = setTimeout(() => {
    cut = load?.turns.requests ?? 0
    for (const socket of load?.speaking ?? []) underWay(socket)?.destroy(drained())
    for (const socket of load?.open ?? []) socket.destroy()
    server.closeAllConnections()
  }, withinMs)
  if (idleMs === 0) closeIdle()
  await closed
  // Each has its log line yet to come.
  const pending = (): boolean => (load?.turns.requests ?? 0) > 0
  for (let i = 0; i < LAST_TURNS && pending(); i++) await nextTurn()
  clearInterval(idle)
  clearTimeout(hard)
  return cut
}

/** Waits for a look at the port that finds nobody: whom the system has taken by then, a closing port would reset. */
async function portEmptied(server: Server): Promise<void> {
  let came = true
  const note = (): void => {
    came = true
  }
  server.on('connection', note)
  // From one of these turns to the next, the event loop has looked.
  await nextTurn()
  for (let i = 0; i < MOST_LOOKS && came; i++) {
    came = false
    await nextTurn()
  }
  server.off('connection', note)
}

/** 503: `drainTimeout` is over. */
const drained = (): Failure =>
  new Failure(serviceUnavailable('The gateway ended before the answer was whole.'))
