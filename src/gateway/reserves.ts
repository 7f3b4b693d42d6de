import type { Quota } from '../limit/quota.ts'

/**
 * The points that calls in progress of this process hold until it is known what they used, by the
 * keys of their counters. There are at most as many keys as limits of calls in progress.
 */
export class Reserves {
  readonly #byKey = new Map<string, { points: number }>()

  hold({ key }: Quota, points: number): void {
    const held = this.#byKey.get(key)
    if (held === undefined) this.#byKey.set(key, { points })
    else held.points += points
  }

  release({ key }: Quota, points: number): void {
    const held = this.#byKey.get(key)
    if (held === undefined) return
    held.points -= points
    if (held.points <= 0) this.#byKey.delete(key)
  }

  /** Returns the points that calls in progress hold of a key. */
  of(key: string): number {
    return this.#byKey.get(key)?.points ?? 0
  }
}
