import type { Address } from './addresses.ts'
import type { Connection } from './connection.ts'

/** Assumed lifetime of an idle socket if the server announces none; Node.js: 5 s. */
const IDLE_MS = 4000
const SWEEP_MS = 1000
/**
 * Rest of a socket after a response that has no body (HEAD, 204, 304), or to a request with a body,
 * in milliseconds. A faulty upstream sends a body nevertheless, or leaves that of the request unread
 * and answers it as another request: those bytes would be parsed as the next response. Its system holds
 * a second small packet back until the first is acknowledged, which ours does within 40 ms (Linux:
 * TCP_DELACK_MIN), or with the next request. Bytes that come while the socket is idle close it. A
 * request does not wait for a rest to end if no more sockets may be opened: that would cost two of
 * three requests at 17,000 a second.
 */
const REST_MS = 50

/**
 * Keeps the idle connections to one upstream, and closes those that expire. Calls `onRested` when
 * one has rested.
 */
export function createIdleConnections(onRested: () => void) {
  /** The one that was used last is last. */
  const idle: Connection[] = []
  const sweep = setInterval(() => {
    const now = performance.now()
    for (const { socket, idleUntil } of idle) if (now >= idleUntil) socket.destroy()
  }, SWEEP_MS).unref()

  const takeAt = (index: number): Connection | undefined =>
    index === -1 ? undefined : idle.splice(index, 1)[0]

  function endRest(connection: Connection): void {
    connection.rests = false
    onRested()
  }

  return {
    isEmpty: (): boolean => idle.length === 0,

    /** Adds a connection, which rests first if `mayBeFollowed`. */
    add(connection: Connection, keepAliveMs = IDLE_MS, mayBeFollowed = false): void {
      connection.idleSince = performance.now()
      connection.idleUntil = connection.idleSince + Math.min(IDLE_MS, keepAliveMs)
      connection.rests = mayBeFollowed
      idle.push(connection)
      // After one poll, which reads the bytes that came meanwhile, also if this process was late.
      if (mayBeFollowed) setTimeout(() => setImmediate(endRest, connection), REST_MS).unref()
    },

    /** Removes a connection, if it is idle, whose socket has closed. */
    remove(connection: Connection): void {
      const at = idle.indexOf(connection)
      if (at !== -1) idle.splice(at, 1)
    },

    /** Removes the usable connection that was used last and does not rest. */
    take: (maxMs: number, address?: Address): Connection | undefined =>
      takeAt(idle.findLastIndex((one) => !one.rests && one.isUsable(maxMs, address))),

    /** Removes the usable connection that has rested longest. */
    takeResting: (maxMs: number): Connection | undefined =>
      takeAt(idle.findIndex((one) => one.isUsable(maxMs))),

    /** Closes the connection that has been idle longest. */
    closeOldest(): void {
      idle[0]!.socket.destroy()
    },

    close(): void {
      clearInterval(sweep)
      for (const { socket } of idle) socket.destroy()
    },
  }
}
