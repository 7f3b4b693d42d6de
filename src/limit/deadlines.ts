/** Bounds how long promises are waited for, with one timer for all of them. */
export interface Deadlines {
  /** Settles as `promise` does, or rejects with a TimeoutError after the common time. */
  bound<T>(promise: Promise<T>): Promise<T>
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

/** All waits are equally long, so they end in the order in which they began: a queue and one timer suffice. */
export function createDeadlines(ms: number): Deadlines {
  let queue: Waiting[] = []
  let done = 0
  let timer: NodeJS.Timeout | undefined

  function expire(): void {
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

  return {
    bound(promise) {
      return new Promise((resolve, reject) => {
        const one: Waiting = {
          endsAtMs: performance.now() + ms,
          expire: () => {
            one.expire = undefined
            reject(new TimeoutError(ms))
          },
        }
        queue.push(one)
        timer ??= arm(ms)
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
