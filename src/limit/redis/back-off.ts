import type { Clock } from '../../runtime/clock.ts'

/** Minimum pause between two replacements of a connection, which doubles with each; and the longest. */
const [REPLACE_MS, MAX_REPLACE_MS] = [1000, 10_000] as const
/** Time without a replacement, in milliseconds, after which the pause is the shortest again. */
const QUIET_MS = 30_000

/**
 * Creates a function that returns true if a connection to a server may be replaced now: the first
 * time, then after 1, 2, 4, 8 and each 10 s, so that a fleet whose connections are all silent does
 * not keep a slow server busy with new ones.
 */
export function createPace(clock: Clock): (server: string) => boolean {
  const last = new Map<string, { readonly atMs: number; readonly pauseMs: number }>()
  return (server) => {
    const now = clock.now()
    for (const [name, { atMs }] of last) if (now - atMs > QUIET_MS) last.delete(name)
    const before = last.get(server)
    if (before !== undefined && now - before.atMs < before.pauseMs) return false
    const pauseMs = before === undefined ? REPLACE_MS : Math.min(2 * before.pauseMs, MAX_REPLACE_MS)
    last.set(server, { atMs: now, pauseMs })
    return true
  }
}
