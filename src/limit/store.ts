import type { KeyFilter } from './key.ts'
import type { Quota } from './limit.ts'

export interface Allowance {
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** Calls that this key may still make now, after this call if it was charged. */
  readonly remaining: number
  /** Epoch milliseconds at which `remaining` next grows; of a quota that refuses, at which the next call can pass. */
  readonly resetAt: number
  /** Milliseconds, with fractions, from the store's now to that instant. */
  readonly resetAfterMs: number
  /** Milliseconds, with fractions, until the next call can pass; 0 while `remaining` is above 0. */
  readonly retryAfterMs: number
  /** True if this quota alone had room for the call. */
  readonly admitted: boolean
  readonly shadow: boolean
}

/** Makes an allowance; `growsAt` in epoch milliseconds with fractions. */
export function allowanceOf(
  { name, limit, windowMs, shadow }: Quota,
  admitted: boolean,
  remaining: number,
  growsAt: number,
  resetAfterMs: number,
): Allowance {
  return {
    name,
    limit,
    windowMs,
    remaining,
    resetAt: Math.ceil(growsAt),
    resetAfterMs,
    retryAfterMs: remaining > 0 ? 0 : resetAfterMs,
    admitted,
    shadow,
  }
}

/** What decided: the store, or the fallback while the store is out of reach. */
export type Mode = 'store' | 'local' | 'allow'

export interface Charge {
  /** True if every quota that is not shadow had room, and so all were charged. */
  readonly admitted: boolean
  /** In the order of the quotas; none where `mode` is `allow`. */
  readonly allowances: readonly Allowance[]
  readonly mode: Mode
  /** Epoch milliseconds of the store's own clock; undefined where `mode` is `allow`. */
  readonly decidedAt?: number
}

/** Where the counters live. Every store gives the same answers on the same clock. */
export interface Store {
  /** Decides all quotas at once: charges each, or none. Rejects if the store cannot be asked. */
  charge(quotas: readonly Quota[]): Charge | Promise<Charge>
  /** Returns what `charge` would, without charging. */
  peek(quotas: readonly Quota[]): Promise<readonly Allowance[]>
  /**
   * Returns up to `max` keys that a filter takes, with calls still counted or not. It may scan everything, until `signal`
   * aborts. Rejects if a server that may keep some cannot be asked.
   */
  keys(filter: KeyFilter, max?: number, signal?: AbortSignal): Promise<readonly string[]>
  /** Deletes every key that a filter takes, and returns how many there were. It may scan, as `keys` does. */
  reset(filter: KeyFilter, signal?: AbortSignal): Promise<number>
  close(): Promise<void>
}

/** A key of the store holds no log of calls. One decision fails, and the store is well. */
export class DamagedKeyError extends Error {
  readonly key: string
  constructor(key: string) {
    super(`The Redis key ${key} is damaged.`)
    this.name = 'DamagedKeyError'
    this.key = key
  }
}
