/** What the clocks of Redis servers show, seen from this process. */
export interface RedisClocks {
  /**
   * The instant on a server's clock, in microseconds, that is `withinMs` after now: surely no later than that, or surely no
   * earlier. 0 where its clock is not known yet.
   */
  after(server: string, nowMs: number, withinMs: number, bound: 'no later' | 'no earlier'): number
  /** Notes what a server's clock showed when it answered a question that was written at `sentAtMs` and read at `readAtMs`. */
  learn(server: string, sentAtMs: number, readAtMs: number, shownUs: number): void
}

/** By how much a clock is ahead of this process's, in microseconds. */
interface Ahead {
  readonly least: number
  readonly most: number
}

/** Keeps the narrowest bounds that the answers agree on. A clock that was set is known from the first answer that does not. */
export function createRedisClocks(): RedisClocks {
  const clocks = new Map<string, Ahead>()
  return {
    after(server, nowMs, withinMs, bound) {
      const ahead = clocks.get(server)
      if (ahead === undefined) return 0
      return Math.round((bound === 'no later' ? ahead.least : ahead.most) + (nowMs + withinMs) * 1000)
    },
    learn(server, sentAtMs, readAtMs, shownUs) {
      const [least, most] = [shownUs - readAtMs * 1000, shownUs - sentAtMs * 1000]
      const known = clocks.get(server)
      if (known === undefined || known.least > most || known.most < least) clocks.set(server, { least, most })
      else clocks.set(server, { least: Math.max(known.least, least), most: Math.min(known.most, most) })
    },
  }
}
