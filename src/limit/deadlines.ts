/** Bounds how long promises are waited for, with one timer for all of them. */
export interface Deadlines {
  /** Settles as `promise` does, or rejects with a TimeoutError after the common time, counted from `sinceMs` (`performance.now()`) or now. */
  bound<T>(promise: Promise<T>, sinceMs?: number): Promise<T>
}

/** The store did not answer in time. */
export class TimeoutError extends Error {
  constructor(ms: number) {
    super(`No answer within ${ms} ms.`)
    this.name = 'TimeoutError'
  }
}

interface Waiting {
  readonly endsAtMs: number
  expire: (() => void) | undefined
}

const DONE_KEPT = 1024

/** All waits are equally long, so they end in the order in which they began, mostly that of the calls: a queue and one timer suffice. */
export function createDeadlines(ms: number): Deadlines {
  let queue: Waiting[] = []
  let done = 0
  let timer: NodeJS.Timeout | undefined

  function expire(): void {
    clearTimeout(timer)
    const nowMs = performance.now()
    let overdue = 0
    for (const one of queue) {
      if (one.expire !== undefined) {
        if (one.endsAtMs > nowMs) break
        one.expire()
      }
      overdue++
    }
    queue = queue.slice(overdue)
    done = 0
    const [next] = queue
    timer = next && arm(next.endsAtMs - nowMs)
  }

  // The answers that came while this process was busy are read before any of them is given up: timers run first in a
  // turn of the event loop, then reading, then immediates.
  function arm(inMs: number): NodeJS.Timeout {
    return setTimeout(() => setImmediate(expire), Math.max(1, inMs)).unref()
  }

  /** Between two runs of the timer, a fast store leaves many behind that are over. */
  function tidy(): void {
    if (++done < DONE_KEPT) return
    queue = queue.filter((one) => one.expire !== undefined)
    done = 0
  }

  /** Puts one into its place: at the end, unless it waits for longer than those that came before. */
  function enter(one: Waiting): void {
    let at = queue.length
    while (at > 0 && queue[at - 1]!.endsAtMs > one.endsAtMs) at--
    if (at === queue.length) queue.push(one)
    else queue.splice(at, 0, one)
    if (at > 0 && timer !== undefined) return
    clearTimeout(timer)
    timer = arm(one.endsAtMs - performance.now())
  }

  return {
    bound(promise, sinceMs = performance.now()) {
      return new Promise((resolve, reject) => {
        const one: Waiting = {
          endsAtMs: sinceMs + ms,
          expire: () => {
            one.expire = undefined
            reject(new TimeoutError(ms))
          },
        }
        enter(one)
        promise.then(
          (value) => {
            if (one.expire === undefined) return
            one.expire = undefined
            tidy()
            resolve(value)
          },
          (error: unknown) => {
            if (one.expire === undefined) return
            one.expire = undefined
            tidy()
            reject(error instanceof Error ? error : new Error(String(error)))
          },
        )
      })
    },
  }
}
