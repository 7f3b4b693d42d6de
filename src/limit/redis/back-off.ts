import type { Clock } from '../../runtime/clock.ts'

/**
 * Pauses between the first two replacements of a connection, in milliseconds, if it leads to a wrong
 * server, or is silent; and the longest. A silent server may be busy with the handshakes of a
 * fleet: if 300 gateways replaced their connections again after a second, they needed 20 s in place
 * of 6 s to find a Redis whose handshakes take 5 ms.
 */
export const [REPLACE_WRONG_MS, REPLACE_SILENT_MS] = [1000, 5000] as const
const MAX_REPLACE_MS = 10_000
/** Time without a replacement, in milliseconds, after which the pause is the shortest again. */
const QUIET_MS = 30_000

/** Timeout of a first attempt to connect, in milliseconds, and the longest of further ones. */
const [CONNECT_MS, MAX_CONNECT_MS] = [1000, 10_000] as const
/** The first pause before reconnecting, in milliseconds, and the longest, so that recovery takes about a second. */
const [PAUSE_MS, MAX_PAUSE_MS] = [50, 1000] as const

/**
 * Returns the timeout of an attempt to connect, in milliseconds, after a number of attempts in a
 * row that failed. It doubles, since a busy Redis finishes handshakes that were abandoned, too.
 */
export const connectTimeoutMs = (failed: number): number => Math.min(CONNECT_MS * 2 ** failed, MAX_CONNECT_MS)

/** Returns the pause before an attempt to connect after `failed` failures, in milliseconds; half of it is random. */
export const reconnectDelayMs = (failed: number): number =>
  Math.min(PAUSE_MS * 2 ** failed, MAX_PAUSE_MS) * (0.5 + Math.random() / 2)

/**
 * Creates a function that returns true if a connection to a server may be replaced now: the first
 * time, after `firstMs`, and then after pauses that double.
 */
export function createPace(clock: Clock): (server: string, firstMs: number) => boolean {
  const last = new Map<string, { readonly atMs: number; readonly pauseMs: number }>()
  return (server, firstMs) => {
    const now = clock.now()
    for (const [name, { atMs }] of last) if (now - atMs > QUIET_MS) last.delete(name)
    const before = last.get(server)
    if (before !== undefined && now - before.atMs < before.pauseMs) return false
    const pauseMs = before === undefined ? firstMs : Math.min(2 * before.pauseMs, MAX_REPLACE_MS)
    last.set(server, { atMs: now, pauseMs })
    return true
  }
}
