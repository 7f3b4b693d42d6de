/**
 * A ring of counts, one for each of the last `seconds`. A second is an integer, mostly the newest: calls
 * may be counted in another order than they ended. The count of the newest second is a field, as the
 * array of each of many callers would be read from memory, not from the processor's cache.
 */
export class Ring {
  readonly #counts: Uint32Array
  #newest = 0
  /** The count of the newest second; its place in the array is 0 while the second lasts. */
  #latest = 0

  constructor(seconds: number) {
    this.#counts = new Uint32Array(seconds + 1)
  }

  add(second: number): void {
    if (second > this.#newest) this.#advance(second)
    if (second === this.#newest) this.#latest++
    else this.#counts[second % this.#counts.length]!++
  }

  /** Returns the counts of the complete seconds before `second`, oldest first. */
  before(second: number): readonly number[] {
    if (second > this.#newest) this.#advance(second)
    const counts = this.#counts
    return Array.from({ length: counts.length - 1 }, (_, i) => counts[(second + 1 + i) % counts.length]!)
  }

  #advance(second: number): void {
    const counts = this.#counts
    counts[this.#newest % counts.length] = this.#latest
    this.#latest = 0
    if (second - this.#newest >= counts.length) counts.fill(0)
    else for (let s = this.#newest + 1; s <= second; s++) counts[s % counts.length] = 0
    this.#newest = second
  }
}

/** Returns the second of an instant of `performance.now()`. */
export const secondOf = (at: number): number => Math.floor(at / 1000)
