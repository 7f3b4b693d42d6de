/** Bounds how long answers are waited for, with one timer for all of them. */
export interface Deadlines {
  /**
   * Settles as `ask` does, or rejects with a TimeoutError once the time is over in which this process could have read the
   * answer. An answer that has arrived by then is read first. `left` says how many milliseconds are left.
   */
  bound<T>(ask: (left: () => number) => Promise<T>): Promise<T>
}

/** No answer came in time. */
export class TimeoutError extends Error {
  constructor(ms: number) {
    super(`No answer within ${ms} ms.`)
    this.name = 'TimeoutError'
  }
}

interface Waiting {
  readonly endsAt: number
  readonly expire: () => void
}

const TICK_MS = 10

/**
 * Counts time by ticks, each for a quarter of `timeoutMs` at most: of a longer one, this process was busy or suspended, which is no
 * failure of whom it asked.
 */
export function createDeadlines(timeoutMs: number): Deadlines {
  const tickMs = Math.min(TICK_MS, timeoutMs / 10)
  const mostMs = Math.max(timeoutMs / 4, 2 * tickMs)
  const waiting = new Set<Waiting>()
  let countedMs = 0
  let tickedAt = performance.now()
  let timer: NodeJS.Timeout | undefined

  function now(): number {
    return countedMs + Math.min(performance.now() - tickedAt, mostMs)
  }

  function tick(): void {
    countedMs = now()
    tickedAt = performance.now()
    // In a turn of the event loop timers run before answers are read, and immediates after it.
    setImmediate(expire, countedMs)
    timer = waiting.size > 0 ? setTimeout(tick, tickMs).unref() : undefined
  }

  function expire(at: number): void {
    for (const one of waiting) {
      // All wait equally long, so that they end in the order in which they began.
      if (one.endsAt > at) return
      waiting.delete(one)
      one.expire()
    }
  }

  return {
    async bound(ask) {
      if (timer === undefined) {
        countedMs = now()
        tickedAt = performance.now()
        timer = setTimeout(tick, tickMs).unref()
      }
      const endsAt = now() + timeoutMs
      let one: Waiting | undefined
      const late = new Promise<never>((_, reject) => {
        one = { endsAt, expire: () => reject(new TimeoutError(timeoutMs)) }
        waiting.add(one)
      })
      try {
        return await Promise.race([ask(() => endsAt - now()), late])
      } finally {
        waiting.delete(one!)
      }
    },
  }
}
