import type { Frame } from '../memory/call-log.ts'
import { fullAt, type Quota, type Window } from '../quota.ts'
import type { Allowance } from '../store.ts'

/** The parts of a limit or an access, and of its allowance, from which a count is recorded. */
type Counted = Window & Pick<Quota, 'cost' | 'counts'>
type Stored = Pick<Allowance, 'admitted' | 'limit' | 'used' | 'own' | 'resetAfterMs'>

/** When calls leave the window, as far as an answer shows. */
interface Departure {
  /** The instant of the first call; when it leaves, `rest` points are left. */
  readonly firstAt: number
  readonly rest: number
}

/**
 * The calls that the store counted for a key at its last answer. Instants are microseconds of the
 * clock.
 *
 *     used ------------+
 *                      | the first call leaves the window
 *                      +-- rest ---------+
 *                                        | all others are assumed to be as late as the last
 *                                        +-- 0
 *                   firstAt + window  lastAt + window
 */
export class StoredCount {
  #used = 0
  /** The first departure. Two numbers: an object for each answer would live until the next one of its key. */
  #firstAt = 0
  #rest = 0
  /** The instant at which the store can last have admitted a call. */
  #lastAt = 0
  /**
   * For each higher cost and each share that the store refused since it last admitted a call, by
   * `fullAt`: more calls must leave, so that more is known of when they do.
   */
  #refused: Map<number, Departure> | undefined

  /**
   * Records what the store counted at a local instant, or before. `mayHaveCharged`: by this call, or
   * another one since the last record; `isCharged`: this call certainly.
   */
  record(counted: Counted, stored: Stored, atMs: number, mayHaveCharged: boolean, isCharged = false): void {
    const at = Math.round(atMs * 1000)
    const windowUs = counted.windowMs * 1000
    const points = stored.used - stored.own
    // A call may take as many points as have just left; when they left is known only as well as the server's clock.
    const isUnchanged = !isCharged && this.#used === points && this.#firstAt > at - windowUs
    // Where nothing was charged, calls have left; what else differs is a settlement that the store does
    // not have yet.
    const isUncharged = !mayHaveCharged && this.#lastAt + windowUs > at
    const isKnown = isUnchanged || isUncharged
    if (!isKnown) this.#refused = undefined
    this.#used = points
    this.#recordDeparture(counted, stored, at, isKnown)
    if (counted.calendar !== undefined || mayHaveCharged || this.#lastAt + windowUs <= at) this.#lastAt = at
    // To a call that no wait lets pass, the store names no departure.
    this.#firstAt = Math.min(this.#firstAt, this.#lastAt)
  }

  /**
   * Records when calls leave: for all calls, or separately for those of a higher cost or a share that is
   * refused. `isKnown`: what earlier answers showed still holds.
   */
  #recordDeparture(counted: Counted, stored: Stored, at: number, isKnown: boolean): void {
    const { windowMs, calendar, cost = 1, counts } = counted
    const { admitted, limit, used, own, resetAfterMs } = stored
    // Above the limit, all calls in excess leave together with the first.
    const most = admitted ? limit : fullAt({ limit, cost })
    const firstAt = calendar === undefined ? at + Math.ceil((resetAfterMs - windowMs) * 1000) : at
    const rest = Math.max(0, Math.min(used, most) - own - 1)
    const isOfHigherCost = cost > 1 || counts !== undefined
    const waitsLonger = isOfHigherCost && !admitted && calendar === undefined
    if (waitsLonger) (this.#refused ??= new Map()).set(most, { firstAt, rest })
    if (!waitsLonger || !isKnown) {
      this.#firstAt = firstAt
      this.#rest = rest
    }
  }

  /** Records that the store has one call, made at a local instant. */
  recordOne(atUs: number): void {
    this.#used = 1
    this.#firstAt = atUs
    this.#rest = 0
    this.#lastAt = atUs
  }

  /** Records that the store has calls that were made until a local instant, which may be earlier than others. */
  recordMerged(atUs: number, points: number): void {
    this.#lastAt = Math.max(this.#lastAt, atUs)
    this.settle(points)
  }

  /**
   * Corrects the points of a call. It is not known when it leaves: what it owes may remain after the
   * first departure, and what it did not use may have left with it.
   */
  settle(points: number): void {
    this.#used = Math.max(0, this.#used + points)
    const owing = Math.max(0, points)
    const corrected = (rest: number): number => Math.min(rest + owing, this.#used)
    this.#rest = corrected(this.#rest)
    for (const [full, { firstAt, rest }] of this.#refused ?? [])
      this.#refused!.set(full, { firstAt, rest: corrected(rest) })
  }

  /** Returns the points in a window, at most: as many as no answer shows to have left. */
  pointsIn({ horizonUs }: Frame): number {
    let points = 0
    if (this.#firstAt > horizonUs) points = this.#used
    else if (this.#lastAt > horizonUs) points = Math.min(this.#used, this.#rest)
    if (this.#refused !== undefined)
      for (const { firstAt, rest } of this.#refused.values())
        if (firstAt <= horizonUs) points = Math.min(points, rest)
    return points
  }
}
