import { TimeoutError } from '../redis/deadlines.ts'

/**
 * Keeps callers from a server that fails: after some failures in a row, the last one `probeEveryMs` after the first or later,
 * it is not asked until a probe succeeds.
 */
export interface Breaker {
  /** May the server be asked? */
  isClosed(): boolean
  succeeded(): void
  failed(error: Error, key: string): void
  /** Opens it at once. */
  trip(error: Error, key: string): void
  /** Probes with this key, and again after a failure; what waits for that is not probed before. */
  look(key: string): void
  stop(): void
}

export interface BreakerOptions {
  /** Failures in a row that open it. */
  readonly failures: number
  readonly probeEveryMs: number
  /** Resolves when the server takes calls for this key again. */
  readonly probe: (key: string) => Promise<void>
  /** Makes the connection anew. */
  readonly reconnect: (key: string) => void
  readonly onChange: (closed: boolean, cause: Error | undefined) => void
  /** Called when the server answers after one failure or more. */
  readonly onRecovered: () => void
}

const RECONNECT_EVERY_MS = 1000

/** A breaker that is closed. Probes go in the background, one at a time. */
export function createBreaker({
  failures,
  probeEveryMs,
  probe,
  reconnect,
  onChange,
  onRecovered,
}: BreakerOptions): Breaker {
  let inARow = 0
  let failingSinceMs = 0
  let open = false
  let idling = false
  let stopped = false
  /** Of the next probe: there is never more than one. */
  let timer: NodeJS.Timeout | undefined
  let reconnectedAtMs = Number.NEGATIVE_INFINITY

  function heal(error: Error, key: string): void {
    // A connection that answers, if only with an error, need not be made anew; a silent one never comes back by itself.
    const nowMs = performance.now()
    if (!(error instanceof TimeoutError) || nowMs - reconnectedAtMs < RECONNECT_EVERY_MS) return
    reconnectedAtMs = nowMs
    reconnect(key)
  }

  function later(next: (key: string) => void, key: string): void {
    timer = setTimeout(() => {
      timer = undefined
      next(key)
    }, probeEveryMs).unref()
  }

  function cancel(): void {
    clearTimeout(timer)
    timer = undefined
  }

  function probeOpen(key: string): void {
    probe(key).then(
      () => {
        if (!open) return
        open = false
        onChange(true, undefined)
        succeeded()
      },
      (error: Error) => {
        if (!open) return
        heal(error, key)
        later(probeOpen, key)
      },
    )
  }

  function failed(error: Error, key: string): void {
    if (open) return
    const nowMs = performance.now()
    if (inARow++ === 0) failingSinceMs = nowMs
    if (inARow >= failures && nowMs - failingSinceMs >= probeEveryMs) trip(error, key)
  }

  function succeeded(): void {
    if (open || inARow === 0) return
    inARow = 0
    onRecovered()
  }

  function trip(error: Error, key: string): void {
    if (open || stopped) return
    open = true
    inARow = Math.max(1, inARow)
    cancel()
    onChange(false, error)
    heal(error, key)
    later(probeOpen, key)
  }

  function probeIdle(key: string): void {
    idling = true
    probe(key).then(
      () => {
        idling = false
        succeeded()
      },
      (error: Error) => {
        idling = false
        failed(error, key)
        if (!open && !stopped) later(probeIdle, key)
      },
    )
  }

  function look(key: string): void {
    if (!open && !idling && timer === undefined && !stopped) probeIdle(key)
  }

  return {
    isClosed: () => !open,
    succeeded,
    failed,
    trip,
    look,
    stop() {
      stopped = true
      open = false
      cancel()
    },
  }
}
