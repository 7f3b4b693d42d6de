import type { Server } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { setImmediate as nextIteration } from 'node:timers/promises'
import { Failure, serviceUnavailable } from '../../errors.ts'
import { responseOf } from '../../runtime/node-http.ts'
import { headerBytes } from './proxied.ts'

const NO_LOAD = { sockets: new Set<Socket>(), requests: () => 0 }
/**
 * Open sockets (also those without HTTP yet) and requests in flight, by server. Node exposes only
 * the number of sockets.
 */
export const loads = new WeakMap<Server, Readonly<typeof NO_LOAD>>()

/** Returns the number of open sockets of a server; a socket with TLS counts once. */
export function openSockets(server: Server): number {
  const sockets = [...(loads.get(server) ?? NO_LOAD).sockets]
  return sockets.filter((socket) => !('encrypted' in socket)).length
}

/**
 * Closes the idle sockets of a server, and the others after the responses that they wait for.
 * Returns these: a response whose head is sent already cannot close its socket, so the next must.
 */
export function endConnections(server: Server): WeakSet<Socket> {
  const { sockets } = loads.get(server) ?? NO_LOAD
  server.closeIdleConnections()
  for (const socket of sockets) {
    const response = responseOf(socket)
    if (response) response.shouldKeepAlive = false
  }
  return new WeakSet(sockets)
}

/** Maximum event-loop iterations to wait for a busy port to become quiet, and for aborted requests to be logged. */
const MAX_ITERATIONS = 100

/**
 * Closes the port, lets responses end `withinMs`, then closes all sockets; returns the aborted
 * requests. Idle sockets stay open for `idleMs`: a request may be on its way.
 */
export async function drain(server: Server, withinMs: number, idleMs = 0): Promise<number> {
  const { sockets, requests } = loads.get(server) ?? NO_LOAD
  let aborted = 0
  const idleAt = performance.now() + idleMs
  await portEmptied(server)
  // `http.Server.close` would close the idle sockets at once.
  const closed = new Promise((resolve) => NetServer.prototype.close.call(server, resolve))
  const closeIdle = (): void => {
    if (performance.now() < idleAt) return
    server.closeIdleConnections()
    // Node does not include sockets that have received nothing from a caller.
    for (const socket of sockets) if (socket.bytesRead === headerBytes(socket)) socket.destroy()
  }
  const idleTimer = setInterval(closeIdle, 50)
  const deadline = setTimeout(() => {
    aborted = requests()
    const reason = serviceUnavailable('The gateway ended before the response was complete.')
    for (const socket of sockets) responseOf(socket)?.destroy(new Failure(reason))
    for (const socket of sockets) socket.destroy()
    server.closeAllConnections()
  }, withinMs)
  closeIdle()
  await closed
  // Ends Node's timer that checks connections, which would keep the server in memory.
  server.close()
  // Aborted requests still write their log lines, at the end of an iteration.
  for (let i = 0; i < MAX_ITERATIONS && requests() > 0; i++) await nextIteration()
  await nextIteration()
  clearInterval(idleTimer)
  clearTimeout(deadline)
  return aborted
}

/**
 * Waits for an iteration without a new connection: closing the port would reset connections that
 * the kernel has accepted and Node has not.
 */
async function portEmptied(server: Server): Promise<void> {
  let isBusy = true
  const setBusy = (): void => {
    isBusy = true
  }
  server.on('connection', setBusy)
  await nextIteration()
  for (let i = 0; i < MAX_ITERATIONS && isBusy; i++) {
    isBusy = false
    await nextIteration()
  }
  server.off('connection', setBusy)
}
