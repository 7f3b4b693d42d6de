export class TimeoutError extends Error {
  constructor(ms: number) {
    super(`No answer within ${ms} ms.`)
    this.name = 'TimeoutError'
  }
}

const TICK_MS = 10

/**
 * Bounds how long answers are waited for, with one timer for all of them. Counts time by ticks, each for at most a quarter of
 * the timeout: in a longer one this process was busy or suspended, which is no failure of the server.
 */
export class Deadlines {
  readonly #timeoutMs: number
  readonly #tickMs: number
  readonly #maxTickMs: number
  /** When each ends → what ends it, in order, since all wait equally long. */
  readonly #waiting = new Set<{ readonly endsAt: number; readonly expire: () => void }>()
  #countedMs = 0
  #tickedAt = performance.now()
  #timer: NodeJS.Timeout | undefined

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs
    this.#tickMs = Math.min(TICK_MS, timeoutMs / 10)
    this.#maxTickMs = Math.max(timeoutMs / 4, 2 * this.#tickMs)
  }

  /**
   * Settles as `ask` does, or rejects with a TimeoutError once the time is over in which this process could have read the
   * answer. An answer that has arrived by then is read first. `left` returns how many milliseconds are left.
   */
  bound<T>(ask: (left: () => number) => Promise<T>): Promise<T> {
    if (this.#timer === undefined) this.#count()
    const endsAt = this.#now() + this.#timeoutMs
    return new Promise((resolve, reject) => {
      const one = { endsAt, expire: () => reject(new TimeoutError(this.#timeoutMs)) }
      this.#waiting.add(one)
      const settling =
        <A>(settle: (outcome: A) => void) =>
        (outcome: A): void => {
          this.#waiting.delete(one)
          settle(outcome)
        }
      ask(() => endsAt - this.#now()).then(settling(resolve), settling(reject))
    })
  }

  #now(): number {
    return this.#countedMs + Math.min(performance.now() - this.#tickedAt, this.#maxTickMs)
  }

  #count(): void {
    this.#countedMs = this.#now()
    this.#tickedAt = performance.now()
    this.#timer = setTimeout(() => this.#tick(), this.#tickMs).unref()
  }

  #tick(): void {
    this.#timer = undefined
    if (this.#waiting.size === 0) return
    this.#count()
    const now = this.#countedMs
    // The event loop runs timers before it reads answers, and immediates after that.
    setImmediate(() => {
      for (const one of this.#waiting) {
        if (one.endsAt > now) return
        this.#waiting.delete(one)
        one.expire()
      }
    })
  }
}

/**
 * The clocks of servers, seen from this process, as narrowly as the answers agree; an answer that does not agree means that the
 * clock was set. Local instants are milliseconds of `performance.now()`.
 */
export class ServerClocks {
  /** Microseconds by which a clock is ahead, at least and at most. */
  readonly #ahead = new Map<string, { readonly least: number; readonly most: number }>()

  /**
   * Converts a local instant to microseconds on a server's clock: an instant that is surely no later, or surely no earlier. 0
   * if nothing is known of its clock.
   */
  at(server: string, localMs: number, bound: 'no later' | 'no earlier'): number {
    const ahead = this.#ahead.get(server)
    if (ahead === undefined) return 0
    return Math.round((bound === 'no later' ? ahead.least : ahead.most) + localMs * 1000)
  }

  /** Records what a server's clock showed between two local instants. */
  learn(server: string, sentAt: number, readAt: number, shownUs: number): void {
    let least = shownUs - readAt * 1000
    let most = shownUs - sentAt * 1000
    const known = this.#ahead.get(server)
    if (known !== undefined && known.least <= most && least <= known.most) {
      least = Math.max(known.least, least)
      most = Math.min(known.most, most)
    }
    this.#ahead.set(server, { least, most })
  }
}
