import type { Clock } from '../../runtime/clock.ts'
import { type ListItem, UnorderedList } from '../../runtime/hot-path.ts'

export class TimeoutError extends Error {
  override readonly name = 'TimeoutError'
}

interface Waiting extends ListItem {
  readonly endsAt: number
  readonly reject: (error: Error) => void
}

/**
 * Creates a timeout for requests to one server, with one timer for all. When one expires, all do,
 * in their order. A tick counts for at most a quarter of the timeout: if it took longer, this
 * process was busy or suspended, which is not a failure of the server.
 */
export function createDeadlines(timeoutMs: number, clock: Clock) {
  const tickMs = Math.min(10, timeoutMs / 10)
  const maxTickMs = Math.max(timeoutMs / 4, 2 * tickMs)
  const waiting = new UnorderedList<Waiting>()
  let countedMs = 0
  let tickedAt = clock.now()
  let isTicking = false

  const elapsedMs = (): number => countedMs + Math.min(clock.now() - tickedAt, maxTickMs)

  function startTick(): void {
    countedMs = elapsedMs()
    tickedAt = clock.now()
    isTicking = true
    clock.after(tickMs, tick)
  }

  function tick(): void {
    isTicking = waiting.size > 0
    if (!isTicking) return
    startTick()
    const now = countedMs
    // The event loop runs timers, then reads answers, then runs immediates.
    clock.soon(() => {
      let isLate = false
      waiting.forEach(({ endsAt }) => (isLate ||= endsAt <= now))
      if (isLate) failAll(new TimeoutError(`No answer within ${timeoutMs} ms.`))
    })
  }

  function failAll(error: Error): void {
    const failed: Waiting[] = []
    waiting.forEach((request) => failed.push(request))
    for (const request of failed.toSorted((a, b) => a.endsAt - b.endsAt)) {
      waiting.delete(request)
      request.reject(error)
    }
  }

  return {
    /**
     * Settles as `ask` does, or rejects with a TimeoutError; an answer that has arrived wins.
     * `remaining` returns milliseconds, 0 after the timeout.
     */
    within<T>(ask: (remaining: () => number) => Promise<T>): Promise<T> {
      if (!isTicking) startTick()
      const endsAt = elapsedMs() + timeoutMs
      return new Promise((resolve, reject) => {
        const request = { index: -1, endsAt, reject }
        waiting.add(request)
        const remaining = (): number => (request.index === -1 ? 0 : endsAt - elapsedMs())
        ask(remaining)
          .finally(() => waiting.delete(request))
          .then(resolve, reject)
      })
    },
    /** Fails all requests without an answer, in their order. */
    failAll,
  }
}

/**
 * Estimates each server's clock as an interval, which answers narrow; one outside it, as the clock
 * was set, becomes it. Local instants are `performance.now()` milliseconds.
 */
export class ServerClocks {
  /** Minimum and maximum difference of each server's clock to the local clock, in microseconds. */
  readonly #ahead = new Map<string, readonly [min: number, max: number]>()
  #last: readonly [min: number, max: number] | undefined

  /**
   * Converts a local instant to the earliest or the latest possible one of a server's clock, in
   * microseconds; 0 if unknown.
   */
  at(server: string, localMs: number, bound: 'earliest' | 'latest'): number {
    const ahead = this.#ahead.get(server)
    return ahead === undefined ? 0 : Math.round(ahead[bound === 'earliest' ? 0 : 1] + localMs * 1000)
  }

  /**
   * Converts a local instant to epoch milliseconds of a server, the earliest possible; by the
   * server heard last if its own clock is unknown, 0 if all are.
   */
  dateAt(server: string, localMs: number): number {
    const [min] = this.#ahead.get(server) ?? this.#last ?? []
    return min === undefined ? 0 : min / 1000 + localMs
  }

  /**
   * Returns the earliest or the latest local instant, in milliseconds, at which a server's clock
   * can have shown a time.
   */
  localMs(server: string, shownUs: number, bound: 'earliest' | 'latest'): number {
    const ahead = this.#ahead.get(server)
    return (shownUs - (ahead === undefined ? shownUs : ahead[bound === 'earliest' ? 1 : 0])) / 1000
  }

  /** Returns the milliseconds between the earliest and the latest; 0 if unknown. */
  spreadMs(server: string): number {
    const [min, max] = this.#ahead.get(server) ?? [0, 0]
    return (max - min) / 1000
  }

  /** Records what a server's clock showed between two local instants. */
  learn(server: string, sentAt: number, readAt: number, shownUs: number): void {
    const [min, max] = [shownUs - readAt * 1000, shownUs - sentAt * 1000]
    const [knownMin, knownMax] = this.#ahead.get(server) ?? [min, max]
    const agrees = knownMin <= max && min <= knownMax
    this.#last = agrees ? [Math.max(knownMin, min), Math.min(knownMax, max)] : [min, max]
    this.#ahead.set(server, this.#last)
  }
}
