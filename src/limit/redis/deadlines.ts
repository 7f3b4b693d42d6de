import type { Clock } from '../../runtime/clock.ts'
import { TimeoutError } from '../store.ts'
import { type ListItem, UnorderedList } from '../../runtime/unordered-list.ts'

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
