import type { KeyFilter, Quota } from './limit.ts'

/** What a store knows of one quota after it was asked. */
export interface Allowance {
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** Calls that this key may still make at this instant, after the charged call where it was charged. */
  readonly remaining: number
  /** Epoch milliseconds at which `remaining` next grows; of a refusing quota, at which the next call can pass. */
  readonly resetAt: number
  /** Milliseconds, with fractions, from the store's now to that instant. */
  readonly resetAfterMs: number
  /** Milliseconds, with fractions, until the next call can pass; 0 while `remaining` is above 0. */
  readonly retryAfterMs: number
  /** Had this quota room for the call, looked at alone? */
  readonly admitted: boolean
  readonly shadow: boolean
}

/** Who decided: the store that was asked, or the fallback while it is out of reach. */
export type Mode = 'store' | 'local' | 'allow'

export interface Charge {
  /** True when every quota that is not shadow had room, and so all were charged. */
  readonly admitted: boolean
  /** One for each quota, in the order asked; under `allow` none. */
  readonly allowances: readonly Allowance[]
  readonly mode: Mode
  /** When it was decided, in epoch milliseconds of the store's own clock; none where `mode` is `allow`. */
  readonly decidedAt?: number
}

/** Where the counters live. Every store gives the same answers on the same clock. */
export interface Store {
  /** Decides all quotas at once: charges each, or none. Rejects when the store cannot be asked. */
  charge(quotas: readonly Quota[]): Charge | Promise<Charge>
  /** What `charge` would find, without charging. */
  peek(quotas: readonly Quota[]): Promise<readonly Allowance[]>
  /**
   * Up to `most` keys, calls still counted or not, that a filter takes. It may scan everything, until `signal` aborts. Rejects
   * where a server that may keep some cannot be asked.
   */
  keys(filter: KeyFilter, most?: number, signal?: AbortSignal): Promise<readonly string[]>
  /** Frees every key that a filter takes; how many there were. It may scan, as `keys` does. */
  reset(filter: KeyFilter, signal?: AbortSignal): Promise<number>
  close(): Promise<void>
}

/** Gets each question that a remote store asked of a server: one of its keys, and why it failed if it did. */
export type OnQuestion = (server: string, key: string, error: Error | undefined) => void

/** A store that is asked over a network, by one server or by several. */
export interface RemoteStore extends Store {
  /** Set by the breaker. */
  onQuestion: OnQuestion
  /** Names the server that keeps a key: what fails there says nothing of the others. */
  server(key: string): string
  /** One key, of no caller, for each server that is known to keep keys now. */
  samples(): readonly string[]
  /** Resolves when the server that keeps this key takes calls; it is told that this gateway is there. */
  probe(key: string): Promise<void>
  /** How many gateways share the store, as far as is known; at least 1. */
  gateways(): number
  /** Closes the connection over which this key is asked for and makes a new one. */
  reconnect(key: string): void
}

/** A key of the store holds no log of calls: one decision cannot be made, and the store is well. */
export class DamagedKeyError extends Error {
  readonly key: string
  constructor(key: string) {
    super(`The Redis key ${key} is damaged.`)
    this.name = 'DamagedKeyError'
    this.key = key
  }
}
