/** What the clocks of Redis servers show, seen from this process. */
export interface RedisClocks {
  /** The instant on a server's clock, in microseconds, that is `withinMs` after now; 0 where its clock is not known yet. */
  after(server: string, nowMs: number, withinMs: number): number
  /** Takes note of what a server's clock showed in its answer to a call sent at `sentAtMs`. */
  learn(server: string, sentAtMs: number, shownUs: number): void
}

/**
 * Learns each clock from the latest answer, so that a clock that was set, or a promoted server's, is known again at once.
 * Counted from when the call was sent, the result errs on the late side, by what that answer took.
 */
export function createRedisClocks(): RedisClocks {
  const aheadUs = new Map<string, number>()
  return {
    after(server, nowMs, withinMs) {
      const ahead = aheadUs.get(server)
      return ahead === undefined ? 0 : Math.ceil(ahead + (nowMs + withinMs) * 1000)
    },
    learn(server, sentAtMs, shownUs) {
      aheadUs.set(server, shownUs - sentAtMs * 1000)
    },
  }
}
