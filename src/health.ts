import { type Clock, SYSTEM_CLOCK } from './runtime/clock.ts'

/** When a dependency counts as down, and the callbacks for it. Times are milliseconds. */
export interface HealthOptions {
  /** Failures in a row after which it is down; default 1. */
  readonly failures?: number
  /** Minimum time from the first of these failures to the last; default 0. */
  readonly spanMs?: number
  /**
   * The pause before the first probe. It doubles with each probe that fails, up to `maxBackoffMs`
   * (default: no doubling).
   */
  readonly backoffMs: number
  readonly maxBackoffMs?: number
  /**
   * Probes the dependency in the background while it is down; rejects if it still is. Without
   * `probe`, callers do so (`due`).
   */
  readonly probe?: () => Promise<unknown>
  /** Called once when it goes down, with its last failure. */
  readonly onDown: (cause: Error) => void
  /** Called with each probe that fails while it is down. */
  readonly onProbeFailed?: (cause: Error) => void
  readonly onUp: () => void
  readonly clock?: Clock
}

/**
 * Tracks whether a dependency is up: counts failures in a row, then probes with a back-off until a
 * probe succeeds.
 */
export class Health {
  readonly #options: HealthOptions
  readonly #clock: Clock
  #failures = 0
  #failingSince = 0
  #up = true
  #stopped = false
  #backoffMs = 0
  #probeAt = 0
  #cancel: (() => void) | undefined
  #probing = false

  constructor(options: HealthOptions) {
    this.#options = options
    this.#clock = options.clock ?? SYSTEM_CLOCK
  }

  get up(): boolean {
    return this.#up
  }

  succeeded(): void {
    if (this.#failures === 0) return
    this.#failures = 0
    this.#cancelProbe()
    const wasUp = this.#up
    this.#up = true
    if (!wasUp && !this.#stopped) this.#options.onUp()
  }

  failed(cause: Error): void {
    const now = this.#clock.now()
    if (this.#failures++ === 0) this.#failingSince = now
    const { failures = 1, spanMs = 0 } = this.#options
    if (this.#failures >= failures && now - this.#failingSince >= spanMs) this.trip(cause)
  }

  /** Goes down now, after any number of failures. */
  trip(cause: Error): void {
    if (!this.#up || this.#stopped) return
    this.#up = false
    this.#failures ||= 1
    this.#cancelProbe()
    this.#options.onDown(cause)
    this.#schedule(this.#options.backoffMs)
  }

  /**
   * Returns true if it is down and a probe is due, which the caller then makes; the next one is due
   * after a doubled pause.
   */
  due(): boolean {
    if (this.#up || this.#clock.now() < this.#probeAt) return false
    this.#schedule(2 * this.#backoffMs)
    return true
  }

  /** Probes now if it is up and no probe runs or is due; repeats the probe while it fails. */
  check(): void {
    if (this.#up && !this.#probing && !this.#cancel && !this.#stopped) void this.#probe()
  }

  stop(): void {
    this.#stopped = true
    this.#cancelProbe()
  }

  #cancelProbe(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  #schedule(backoffMs: number): void {
    const { probe, maxBackoffMs = this.#options.backoffMs } = this.#options
    this.#backoffMs = Math.min(backoffMs, maxBackoffMs)
    this.#probeAt = this.#clock.now() + this.#backoffMs
    if (probe && !this.#stopped) this.#cancel = this.#clock.after(this.#backoffMs, () => void this.#probe())
  }

  async #probe(): Promise<void> {
    this.#cancel = undefined
    this.#probing = true
    const [end] = await Promise.allSettled([this.#options.probe!()])
    this.#probing = false
    if (end.status === 'fulfilled') return this.succeeded()
    if (this.#up) this.failed(end.reason)
    else this.#options.onProbeFailed?.(end.reason)
    // If `failed` tripped, the next probe is already scheduled.
    if (!this.#cancel) this.#schedule(this.#up ? this.#options.backoffMs : 2 * this.#backoffMs)
  }
}
