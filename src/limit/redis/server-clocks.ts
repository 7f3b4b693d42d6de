/**
 * Estimates the clock of each server as an interval. Each answer narrows the interval; an answer
 * outside it means that the clock was set, and replaces it. Local instants are milliseconds of
 * `performance.now()`.
 */
export class ServerClocks {
  /** Minimum and maximum difference of each server's clock to the local clock, in microseconds. */
  readonly #ahead = new Map<string, readonly [min: number, max: number]>()
  #last: readonly [min: number, max: number] | undefined
  /** The maximum difference of each server's clock as it was known first, since it was set. */
  readonly #firstMax = new Map<string, number>()

  /**
   * Converts a local instant to the earliest or the latest possible one of a server's clock, in
   * microseconds; undefined if its clock is unknown.
   */
  at(server: string, localMs: number, bound: 'earliest' | 'latest'): number | undefined {
    const ahead = this.#ahead.get(server)
    return ahead && Math.round(ahead[bound === 'earliest' ? 0 : 1] + localMs * 1000)
  }

  /**
   * Converts a local instant to the latest one of a server's clock that was possible at any time since
   * it is known, in microseconds; undefined if it is unknown.
   */
  latestEver(server: string, localMs: number): number | undefined {
    const firstMax = this.#firstMax.get(server)
    return firstMax === undefined ? undefined : Math.round(firstMax + localMs * 1000)
  }

  /**
   * Converts a local instant to epoch milliseconds of a server, the earliest possible; by the
   * server heard last if its own clock is unknown, undefined if all are.
   */
  dateAt(server: string, localMs: number): number | undefined {
    const [min] = this.#ahead.get(server) ?? this.#last ?? []
    return min === undefined ? undefined : min / 1000 + localMs
  }

  /**
   * Returns the earliest or the latest local instant, in milliseconds, at which a server's clock
   * can have shown a time; undefined if its clock is unknown.
   */
  localMs(server: string, shownUs: number, bound: 'earliest' | 'latest'): number | undefined {
    const ahead = this.#ahead.get(server)
    return ahead && (shownUs - ahead[bound === 'earliest' ? 1 : 0]) / 1000
  }

  /** Returns the milliseconds between the earliest and the latest; undefined if its clock is unknown. */
  spreadMs(server: string): number | undefined {
    const ahead = this.#ahead.get(server)
    return ahead && (ahead[1] - ahead[0]) / 1000
  }

  /** Records what a server's clock showed between two local instants. */
  learn(server: string, sentAt: number, readAt: number, shownUs: number): void {
    const [min, max] = [shownUs - readAt * 1000, shownUs - sentAt * 1000]
    const known = this.#ahead.get(server)
    const agrees = known !== undefined && known[0] <= max && min <= known[1]
    if (!agrees) this.#firstMax.set(server, max)
    this.#last = agrees ? [Math.max(known[0], min), Math.min(known[1], max)] : [min, max]
    this.#ahead.set(server, this.#last)
  }
}
