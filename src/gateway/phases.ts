import type { Exchange, GatewayDeps, Outcome } from './exchange.ts'

/** A phase of a request, which may read what `Known` says. Returns the refusal that ends the request, or undefined. */
export type Phase<Known> = (deps: GatewayDeps, exchange: Known) => Outcome | Promise<Outcome>

/** Phases in their order, after which an exchange is known as `Known` says. */
export class Phases<Known extends Exchange> {
  readonly #list: readonly Phase<Known>[]

  private constructor(list: readonly Phase<Known>[]) {
    this.#list = list
  }

  get length(): number {
    return this.#list.length
  }

  /** Begins with the phase that knows nothing of the exchange, after which it is known as `Next` says. */
  static first<Next extends Exchange>(phase: Phase<Exchange>): Phases<Next> {
    return new Phases<Next>([phase])
  }

  /**
   * Adds a phase, after which an exchange is known as `Next` says. The compiler refuses a phase that
   * reads what none before it has found.
   */
  next<Next extends Known = Known>(phase: Phase<Known>): Phases<Next> {
    return new Phases<Next>([...this.#list, phase])
  }

  /** Runs the phase at an index; those before it must have run. */
  run(index: number, deps: GatewayDeps, exchange: Exchange): ReturnType<Phase<Known>> {
    // They have found what the type of this one says: `next` accepts no other order. Asking each
    // exchange for it: +0.08 us a request.
    return this.#list[index]?.(deps, exchange as Known)
  }
}
