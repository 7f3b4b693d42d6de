/** Something that times out when it is silent for too long. */
export interface Timed {
  readonly timeoutMs: number
  /** `performance.now()` at its last progress. */
  readonly silentSince: number
  onTimeout(): void
}

/** A timeout comes late by as much at most. */
const TICK_MS = 40

/** Bounds the silence of many requests with one timer, which runs while there are any. */
export class Timeouts {
  readonly #waiting = new Set<Timed>()
  #timer: NodeJS.Timeout | undefined

  add(one: Timed): void {
    this.#waiting.add(one)
    this.#timer ??= setInterval(() => this.#sweep(), TICK_MS)
  }

  delete(one: Timed): void {
    this.#waiting.delete(one)
  }

  #sweep(): void {
    const now = performance.now()
    for (const one of this.#waiting) if (now - one.silentSince >= one.timeoutMs) one.onTimeout()
    if (this.#waiting.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
