import type { IncomingMessage } from 'node:http'

/** How long an address keeps idle sockets, as far as that was seen. */
export interface Lifetime {
  /** The shortest time, in milliseconds, after which it closed an idle one lately; infinite where it closed none. */
  leastMs(): number
  /** It closed one that was idle for so long; infinite where it kept one for as long as it was asked to. */
  seen(idleMs: number): void
}

/** What is closed earlier is not closed for being idle: it was much used, or the server ends. */
const LEAST_MS = 100
/** What was seen counts for this long at least, and no longer than twice that where something else is seen since. */
const PERIOD_MS = 60_000

/** Remembers two numbers, whatever is seen. */
export function createLifetime(now = (): number => performance.now()): Lifetime {
  let least = Number.POSITIVE_INFINITY
  let leastBefore = Number.POSITIVE_INFINITY
  let nextAt = 0
  return {
    leastMs: () => Math.min(least, leastBefore),
    seen(idleMs) {
      if (idleMs < LEAST_MS) return
      if (now() >= nextAt) {
        leastBefore = least
        least = Number.POSITIVE_INFINITY
        nextAt = now() + PERIOD_MS
      }
      least = Math.min(least, idleMs)
    },
  }
}

/**
 * How long an upstream says it keeps an idle socket, less the time for the way there: `Keep-Alive: timeout=5`
 * (RFC 2068 section 19.7.1.1) is in seconds.
 */
export function announcedBy(answer: IncomingMessage): number | undefined {
  const hint = answer.headers['keep-alive']
  const seconds = hint === undefined ? undefined : /timeout=(\d+)/.exec(String(hint))?.[1]
  if (seconds === undefined) return undefined
  const ms = Number(seconds) * 1000
  return Math.max(ms - 1000, ms / 2)
}
