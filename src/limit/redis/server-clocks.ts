/**
 * Estimates the clock of each server as an interval. Each answer narrows the interval; an answer
 * outside it means that the clock was set, and replaces it. Local instants are milliseconds of
 * `performance.now()`.
 */
export class ServerClocks {
  /** Minimum and maximum difference of each server's clock to the local clock, in microseconds. */
  readonly #ahead = new Map<string, readonly [min: number, max: number]>()
  #last: readonly [min: number, max: number] | undefined

  /**
   * Converts a local instant to the earliest or the latest possible one of a server's clock, in
   * microseconds; undefined if its clock is unknown.
   */
  at(server: string, localMs: number, bound: 'earliest' | 'latest'): number | undefined {
    const ahead = this.#ahead.get(server)
    return ahead && Math.round(ahead[bound === 'earliest' ? 0 : 1] + localMs * 1000)
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
    const [knownMin, knownMax] = this.#ahead.get(server) ?? [min, max]
    const agrees = knownMin <= max && min <= knownMax
    this.#last = agrees ? [Math.max(knownMin, min), Math.min(knownMax, max)] : [min, max]
    this.#ahead.set(server, this.#last)
  }
}
