/** When a dependency counts as down, and what is done about it. Times are milliseconds. */
export interface HealthOptions {
  /** Failures in a row after which it is down; default 1. */
  readonly failures?: number
  /** Shortest time from the first of these failures to the last; default 0. */
  readonly spanMs?: number
  /** The pause before the first probe. It doubles with each probe that fails, up to `maxBackoffMs` (default: no doubling). */
  readonly backoffMs: number
  readonly maxBackoffMs?: number
  /** Asks it in the background while it is down, and rejects as long as it is. Without it, callers probe (`due`). */
  readonly probe?: () => Promise<unknown>
  /** Called once when it goes down, with its last failure. */
  readonly onDown: (cause: Error) => void
  /** Called with the failure of each probe while it is down. */
  readonly onProbeFailed?: (cause: Error) => void
  /** Called once when it is up again. */
  readonly onUp: () => void
  /** Called with each success that follows a failure, after `onUp`. */
  readonly onRecovered?: () => void
  /** A clock that never goes back. */
  readonly now?: () => number
}

/** Tracks whether one dependency is up: counts failures in a row, then probes with a back-off until it answers. */
export class Health {
  readonly #options: HealthOptions
  readonly #now: () => number
  #failures = 0
  #failingSince = 0
  #up = true
  #stopped = false
  #backoffMs: number
  #probeAt = 0
  #timer: NodeJS.Timeout | undefined
  #probing = false

  constructor(options: HealthOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#backoffMs = options.backoffMs
  }

  get up(): boolean {
    return this.#up
  }

  /** Failures in a row. */
  get failures(): number {
    return this.#failures
  }

  succeeded(): void {
    if (this.#failures === 0) return
    this.#failures = 0
    this.#cancel()
    const wasUp = this.#up
    this.#up = true
    if (this.#stopped) return
    if (!wasUp) this.#options.onUp()
    this.#options.onRecovered?.()
  }

  failed(cause: Error): void {
    const now = this.#now()
    if (this.#failures++ === 0) this.#failingSince = now
    const { failures = 1, spanMs = 0 } = this.#options
    if (this.#failures >= failures && now - this.#failingSince >= spanMs) this.trip(cause)
  }

  /** Goes down now, however few failures there were. */
  trip(cause: Error): void {
    if (!this.#up || this.#stopped) return
    this.#up = false
    this.#failures ||= 1
    this.#cancel()
    this.#backoffMs = this.#options.backoffMs
    this.#options.onDown(cause)
    this.#schedule()
  }

  /** True if it is down and a probe is due; the caller makes it, and others wait out a longer pause. */
  due(): boolean {
    if (this.#up || this.#now() < this.#probeAt) return false
    this.#lengthen()
    this.#schedule()
    return true
  }

  /** Probes now while it is up, unless a probe runs or is due; repeats that while the probe fails. */
  check(): void {
    if (this.#up && !this.#probing && this.#timer === undefined && !this.#stopped) this.#probe()
  }

  /** Ends the probes, and reports no more. */
  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  #cancel(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #lengthen(): void {
    this.#backoffMs = Math.min(2 * this.#backoffMs, this.#options.maxBackoffMs ?? this.#options.backoffMs)
  }

  #schedule(): void {
    this.#probeAt = this.#now() + this.#backoffMs
    if (this.#options.probe === undefined || this.#stopped) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#probe()
    }, this.#backoffMs).unref()
  }

  #probe(): void {
    this.#probing = true
    this.#options.probe!().then(
      () => {
        this.#probing = false
        this.succeeded()
      },
      (error: Error) => {
        this.#probing = false
        this.#probeFailed(error)
      },
    )
  }

  #probeFailed(error: Error): void {
    if (this.#up) {
      this.failed(error)
      if (this.#up) this.#schedule()
      return
    }
    this.#failures++
    this.#lengthen()
    // A trip while this probe ran has scheduled the next one.
    if (this.#timer === undefined) this.#schedule()
    this.#options.onProbeFailed?.(error)
  }
}
