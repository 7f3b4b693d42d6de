import type { Quota } from '../limit/quota.ts'

/** Points that a call in progress was charged of a limit. */
interface Held {
  readonly quota: Quota
  readonly points: number
}

/**
 * The reserves of calls in progress of this process until it is known what they used: at most as many
 * as limits of calls in progress. Operators rarely ask for their sum; each call adds and removes some.
 */
export class Reserves {
  readonly #held = new Set<Held>()

  hold(reserve: Held): void {
    this.#held.add(reserve)
  }

  release(reserve: Held): void {
    this.#held.delete(reserve)
  }

  /** Returns the points that calls in progress hold of the counter with a key. */
  of(key: string): number {
    let points = 0
    for (const held of this.#held) if (held.quota.key === key) points += held.points
    return points
  }
}
