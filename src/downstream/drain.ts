import type { Server } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate as nextTick } from 'node:timers/promises'
import { Failure, serviceUnavailable } from '../errors.ts'
import { responseOf } from './pipelining.ts'

/** Every socket, also those that carry no HTTP (yet), and how many requests are in flight. */
const NO_LOAD = { sockets: new Set<Socket>(), requests: () => 0 }
/** What Node does not know of each server that `createListener` made. */
export const loads = new WeakMap<Server, Readonly<typeof NO_LOAD>>()

/** Returns how many sockets of a server are open; one with TLS counts once. */
export function openSockets(server: Server): number {
  const sockets = [...(loads.get(server) ?? NO_LOAD).sockets]
  return sockets.filter((socket) => !('encrypted' in socket)).length
}

const IDLE_CHECK_MS = 50
/** Most iterations of the event loop to wait at a port to which connections come all the time, and for requests that were cut. */
const MAX_TICKS = 100

/**
 * Ends a server: no new sockets, answers in flight get `withinMs`, then everything is closed; returns how many requests were cut.
 * Idle sockets stay for `idleMs`, since closing one may cross a request on its way.
 */
export async function drain(server: Server, withinMs: number, idleMs = 0): Promise<number> {
  const { sockets, requests } = loads.get(server) ?? NO_LOAD
  let cut = 0
  const idleAt = performance.now() + idleMs
  await portEmptied(server)
  // `http.Server.close` would close the idle sockets at once.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()))
  const closeIdle = (): void => {
    if (performance.now() < idleAt) return
    server.closeIdleConnections()
    // Node does not count those on which nothing has come.
    for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy()
  }
  const idle = setInterval(closeIdle, IDLE_CHECK_MS)
  const hard = setTimeout(() => {
    cut = requests()
    const reason = serviceUnavailable('The gateway ended before the answer was whole.')
    for (const socket of sockets) responseOf(socket)?.destroy(new Failure(reason))
    for (const socket of sockets) socket.destroy()
    server.closeAllConnections()
  }, withinMs)
  closeIdle()
  await closed
  // Each request that was cut still writes its log line.
  for (let i = 0; i < MAX_TICKS && requests() > 0; i++) await nextTick()
  // Log lines are written at the end of an iteration.
  await nextTick()
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
  for (let i = 0; i < MAX_TICKS && came; i++) {
    came = false
    await nextTick()
  }
  server.off('connection', note)
}
