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

/** Who decided: the store that was asked, or what stands in for it while it is out of reach. */
export type Mode = 'store' | 'local' | 'allow'

export interface Charge {
  /** True when every quota that is not shadow had room, and so all were charged. */
  readonly admitted: boolean
  /** One for each quota, in the order asked; none where `mode` is `allow`. */
  readonly allowances: readonly Allowance[]
  readonly mode: Mode
  /** When it was decided, in epoch milliseconds of the store's own clock; none where `mode` is `allow`. */
  readonly decidedAt?: number
}

/**
 * Where the counters live. Every store gives the same answers on the same clock. `sinceMs` is the `performance.now()` since which
 * the request waits for the store, where it asked before: all that it waits has one bound.
 */
export interface Store {
  /** Decides all quotas at once: charges each, or none. Rejects when the store cannot be asked. */
  charge(quotas: readonly Quota[], sinceMs?: number): Charge | Promise<Charge>
  /** What `charge` would find, without charging. */
  peek(quotas: readonly Quota[], sinceMs?: number): Promise<readonly Allowance[]>
  /** The keys, calls still counted or not, that a filter takes; it may scan everything. Rejects where one who may keep some cannot be asked. */
  keys(filter: KeyFilter): Promise<readonly string[]>
  /** Frees every key that a filter takes; how many there were. Rejects where one who may keep some cannot be asked. */
  reset(filter: KeyFilter): Promise<number>
  /** True the first time a key is seen within its time to live (single use of a `jti`). */
  once(key: string, ttlMs: number): Promise<boolean>
  close(): Promise<void>
}

/** A store that is asked over a network, by one server or by several. */
export interface RemoteStore extends Store {
  /** Names the server that keeps a key: what fails there says nothing of the others. */
  server(key: string): string
  /** One key, of no caller, for each server that is known to keep keys now. */
  samples(): readonly string[]
  /** Resolves when a call could be charged where this key is kept. */
  probe(key: string): Promise<void>
  /** Drops the connection over which this key is asked for and makes a new one, lest a silent one stay for ever. */
  reconnect(key: string): void
}
