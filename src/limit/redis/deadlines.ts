import { UnorderedList, type ListItem } from '../../runtime/unordered-list.ts'

export class TimeoutError extends Error {
  constructor(ms: number) {
    super(`No answer within ${ms} ms.`)
    this.name = 'TimeoutError'
  }
}

const TICK_MS = 10

interface Waiting extends ListItem {
  readonly endsAt: number
  readonly expire: () => void
}

/**
 * Bounds how long answers are waited for, with one timer for all of them. Counts time by ticks, each for at most a quarter of
 * the timeout: in a longer one this process was busy or suspended, which is no failure of the server.
 */
export function createDeadlines(timeoutMs: number) {
  const tickMs = Math.min(TICK_MS, timeoutMs / 10)
  const maxTickMs = Math.max(timeoutMs / 4, 2 * tickMs)
  const waiting = new UnorderedList<Waiting>()
  let countedMs = 0
  let tickedAt = performance.now()
  let isTicking = false

  const elapsedMs = (): number => countedMs + Math.min(performance.now() - tickedAt, maxTickMs)

  function count(): void {
    countedMs = elapsedMs()
    tickedAt = performance.now()
    isTicking = true
    setTimeout(tick, tickMs).unref()
  }

  function tick(): void {
    isTicking = waiting.size > 0
    if (!isTicking) return
    count()
    const now = countedMs
    // The event loop runs timers before it reads answers, and immediates after that.
    setImmediate(() => {
      const expired: Waiting[] = []
      waiting.forEach((one) => {
        if (one.endsAt <= now) expired.push(one)
      })
      // Those that waited longest first, as they take what a fallback has left.
      for (const one of expired.toSorted((a, b) => a.endsAt - b.endsAt)) {
        waiting.delete(one)
        one.expire()
      }
    })
  }

  /**
   * Settles as `ask` does, or rejects with a TimeoutError once the time is over in which this process could have read the
   * answer. An answer that has arrived by then is read first. `left` returns how many milliseconds are left.
   */
  return <T>(ask: (left: () => number) => Promise<T>): Promise<T> => {
    if (!isTicking) count()
    const endsAt = elapsedMs() + timeoutMs
    return new Promise((resolve, reject) => {
      const one = { index: -1, endsAt, expire: () => reject(new TimeoutError(timeoutMs)) }
      waiting.add(one)
      const settling =
        <A>(settle: (outcome: A) => void) =>
        (outcome: A): void => {
          waiting.delete(one)
          settle(outcome)
        }
      ask(() => endsAt - elapsedMs()).then(settling(resolve), settling(reject))
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
