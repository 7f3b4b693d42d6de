/** Time and timers, which a simulation replaces. Times are milliseconds. Timers do not keep the process alive. */
export interface Clock {
  /** A clock that never goes back, with fractions. */
  now(): number
  /** Epoch milliseconds of this machine, whose clock may be set. */
  date(): number
  /** Calls `run` once after a pause; returns the function that cancels it. */
  after(ms: number, run: () => void): () => void
  /** Calls `run` at intervals; returns the function that ends them. */
  every(ms: number, run: () => void): () => void
  /** Calls `run` at the end of this iteration of the event loop, after all reads. */
  soon(run: () => void): void
}

export const SYSTEM_CLOCK: Clock = {
  now: () => performance.now(),
  date: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms).unref()
    return () => clearTimeout(timer)
  },
  every(ms, run) {
    const timer = setInterval(run, ms).unref()
    return () => clearInterval(timer)
  },
  soon: (run) => void setImmediate(run),
}

/** Difference above which the machine's clock was set, in milliseconds; smaller differences are its granularity. */
const STEP_MS = 20

/**
 * Creates a function that converts an instant of `now` to epoch milliseconds, always alike, unlike
 * the whole milliseconds of `date`.
 */
export function epochOf({ now, date }: Pick<Clock, 'now' | 'date'>): (atMs: number) => number {
  let aheadMs = date() - now()
  return (atMs) => {
    const strayMs = date() - (now() + aheadMs)
    if (Math.abs(strayMs) > STEP_MS) aheadMs += strayMs
    return atMs + aheadMs
  }
}
