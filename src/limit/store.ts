import type { Quota } from './limit.ts'

/** What a store knows of one quota after it was asked. */
export interface Allowance {
  readonly name: string
  readonly limit: number
  /** Calls that this key may still make at this instant, after the charged call where it was charged. */
  readonly remaining: number
  /** Epoch milliseconds at which `remaining` next grows; of a refusing quota, at which the next call can pass. */
  readonly resetAt: number
  /** Milliseconds until the next call can pass; 0 while `remaining` is above 0. */
  readonly retryAfterMs: number
  /** Had this quota room for the call, looked at alone? */
  readonly admitted: boolean
  readonly shadow: boolean
}

export interface Charge {
  /** True when every quota that is not shadow had room, and so all were charged. */
  readonly admitted: boolean
  /** One for each quota, in the order asked. */
  readonly allowances: readonly Allowance[]
}

/** Where the counters live. Every store gives the same answers on the same clock. */
export interface Store {
  /** Decides all quotas at once: charges each, or none. Rejects when the store cannot be asked. */
  charge(quotas: readonly Quota[]): Promise<Charge>
  /** What `charge` would find, without charging. */
  peek(quotas: readonly Quota[]): Promise<readonly Allowance[]>
  /** The keys, calls still counted or not, that belong to a client. */
  keys(client: string): Promise<readonly string[]>
  /** Frees every key of a client; how many there were. */
  reset(client: string): Promise<number>
  /** True the first time a key is seen within its time to live (single use of a `jti`). */
  once(key: string, ttlMs: number): Promise<boolean>
  close(): Promise<void>
}
