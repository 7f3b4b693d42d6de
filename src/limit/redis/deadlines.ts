/** Bounds how long answers are waited for, with one timer for all of them. */
export interface Deadlines {
  /**
   * Settles as `ask` does, or rejects with a TimeoutError once the time is over in which this process could have read the
   * answer. An answer that has arrived by then is read first. `left` returns how many milliseconds are left.
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
 * Counts time by ticks, each for at most a quarter of `timeoutMs`: in a longer one this process was busy or suspended, which is
 * no failure of the server.
 */
export function createDeadlines(timeoutMs: number): Deadlines {
  const tickMs = Math.min(TICK_MS, timeoutMs / 10)
  const maxTickMs = Math.max(timeoutMs / 4, 2 * tickMs)
  // All wait equally long, so that they end in the order in which they began.
  const waiting = new Set<Waiting>()
  let countedMs = 0
  let tickedAt = performance.now()
  let timer: NodeJS.Timeout | undefined

  const now = (): number => countedMs + Math.min(performance.now() - tickedAt, maxTickMs)

  function tick(): void {
    countedMs = now()
    tickedAt = performance.now()
    // The event loop runs timers before it reads answers, and immediates after that.
    setImmediate(expire, countedMs)
    timer = waiting.size > 0 ? setTimeout(tick, tickMs).unref() : undefined
  }

  function expire(at: number): void {
    for (const one of waiting) {
      if (one.endsAt > at) return
      waiting.delete(one)
      one.expire()
    }
  }

  return {
    bound(ask) {
      if (timer === undefined) {
        countedMs = now()
        tickedAt = performance.now()
        timer = setTimeout(tick, tickMs).unref()
      }
      const endsAt = now() + timeoutMs
      return new Promise((resolve, reject) => {
        const one = { endsAt, expire: () => reject(new TimeoutError(timeoutMs)) }
        waiting.add(one)
        ask(() => endsAt - now()).then(
          (answer) => {
            waiting.delete(one)
            resolve(answer)
          },
          (error: Error) => {
            waiting.delete(one)
            reject(error)
          },
        )
      })
    },
  }
}

/** The clocks of servers, seen from this process. Local instants are milliseconds of `performance.now()`. */
export interface ServerClocks {
  /**
   * Converts a local instant to microseconds on a server's clock: an instant that is surely no later, or surely no earlier. 0
   * if nothing is known of its clock.
   */
  at(server: string, localMs: number, bound: 'no later' | 'no earlier'): number
  /** Records what a server's clock showed between two local instants. */
  learn(server: string, sentAt: number, readAt: number, shownUs: number): void
}

/** Keeps the narrowest bounds that the answers agree on. An answer outside them means that the clock was set. */
export function createServerClocks(): ServerClocks {
  /** Microseconds by which a clock is ahead, at least and at most. */
  const clocks = new Map<string, { readonly least: number; readonly most: number }>()
  return {
    at(server, localMs, bound) {
      const ahead = clocks.get(server)
      if (ahead === undefined) return 0
      return Math.round((bound === 'no later' ? ahead.least : ahead.most) + localMs * 1000)
    },
    learn(server, sentAt, readAt, shownUs) {
      const least = shownUs - readAt * 1000
      const most = shownUs - sentAt * 1000
      const known = clocks.get(server)
      const agrees = known !== undefined && known.least <= most && least <= known.most
      clocks.set(
        server,
        agrees ? { least: Math.max(known.least, least), most: Math.min(known.most, most) } : { least, most },
      )
    },
  }
}
