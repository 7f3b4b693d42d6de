import type { KeyFilter } from './key.ts'
import { isAccess, type Quota } from './limit.ts'

/** The state of a key under a quota, at the instant of a decision. */
export interface Allowance {
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** Calls in the window, after this call if it was charged; above `limit` after the limit was lowered. */
  readonly used: number
  /** Calls that the key may still make. */
  readonly remaining: number
  /** Epoch milliseconds at which `remaining` next grows; of a quota that refuses, at which the next call can pass. */
  readonly resetAt: number
  /** Milliseconds, with fractions, from the store's now to `resetAt`. */
  readonly resetAfterMs: number
  /** Milliseconds, with fractions, until the next call can pass; 0 while `remaining` is above 0. */
  readonly retryAfterMs: number
  /** True if this quota had room for the call, whether or not the other quotas had. */
  readonly admitted: boolean
  readonly shadow: boolean
}

/** Creates an allowance; `growsAt` is in epoch milliseconds with fractions. */
export function allowanceOf(
  { name, limit, windowMs, shadow, calendar }: Quota,
  admitted: boolean,
  used: number,
  growsAt: number,
  resetAfterMs: number,
): Allowance {
  // A period ends at a whole millisecond, from which the sum of fractions differs by less than a microsecond.
  const resetAt = calendar === undefined ? Math.ceil(growsAt) : Math.round(growsAt)
  const remaining = Math.max(0, limit - used)
  const retryAfterMs = remaining > 0 ? 0 : resetAfterMs
  return { name, limit, windowMs, used, remaining, resetAt, resetAfterMs, retryAfterMs, admitted, shadow }
}

export interface Charge {
  /** True if every quota that is not shadow had room, and so all were charged. */
  readonly admitted: boolean
  /** Allowances in the order of the quotas; empty if `mode` is `allow`. */
  readonly allowances: readonly Allowance[]
  /** `store` if the store decided, otherwise the fallback that did while the store was unavailable. */
  readonly mode: 'store' | 'local' | 'allow'
  /** Epoch milliseconds of the store's clock, or of this gateway's if the fallback decided. */
  readonly decidedAt?: number | undefined
  /** The latest instant of this gateway's clock, in milliseconds, at which the store can have decided. */
  readonly localMs?: number
}

/** Decides quotas; `pays` is true for those that an admitted call is charged to. While an access has no room, the quota after it has, if it has calls and its limit is not 0. */
export function settle<T extends { quota: Quota; used: number; hasRoom: boolean }>(found: readonly T[]) {
  let access: (T & { pays: boolean }) | undefined
  const settled = found.map((each) => {
    const isFree = access?.hasRoom === false && each.used > 0 && each.quota.limit > 0
    const current = { ...each, hasRoom: each.hasRoom || isFree, pays: each.hasRoom && !isFree }
    if (access !== undefined) access.pays = current.pays
    access = isAccess(each.quota) ? current : undefined
    return current
  })
  const admitted = settled.every(({ quota, hasRoom }) => hasRoom || quota.shadow || isAccess(quota))
  return { admitted, settled }
}

/** Calls of a key that a gateway has admitted by itself, to be added to the store. */
export interface Addition {
  readonly quota: Quota
  /** Instants of the gateway's clock in milliseconds, oldest first, each with the number of its calls. */
  readonly calls: readonly (readonly [atMs: number, calls: number])[]
  /** Milliseconds by which the instants are later than the calls: how far the estimates of the server's clock were apart. */
  readonly spreadMs: number
  /** Calls that are given back to the calendar period that ends at `endsAt` (epoch milliseconds). */
  readonly back: { readonly calls: number; readonly endsAt: number } | undefined
  /** Called once, even after the timeout: with the answer if the calls were added, with nothing if they were not or the answer was lost. */
  readonly onEnd: (charge: Charge | undefined) => void
}

/** The counters. Every store gives the same answers on the same clock. */
export interface Store {
  /** Decides all quotas at once: charges each, or none. While an access is under way, the quota after it has room, and neither is charged. Rejects without an answer. */
  charge(quotas: readonly Quota[]): Charge | Promise<Charge>
  /** Returns the allowances that `charge` would, without charging. */
  peek(quotas: readonly Quota[]): Promise<readonly Allowance[]>
  /** Gives a charged call back to the calendar period that ends then (epoch milliseconds), if that period is not over. */
  giveBack(quota: Quota, endsAt: number): void
  /** Returns up to `max` matching keys, also without calls in the window. May scan until `signal` aborts. Rejects if a server is down. */
  keys(filter: KeyFilter, max?: number, signal?: AbortSignal): Promise<readonly string[]>
  /** Deletes every key that matches a filter, and returns their number. May scan all keys, as `keys` does. */
  reset(filter: KeyFilter, signal?: AbortSignal): Promise<number>
  close(): Promise<void>
}

/** A key of the store does not hold a log of calls. The decision fails, but the server is healthy. */
export class DamagedKeyError extends Error {
  override readonly name = 'DamagedKeyError'
  readonly key: string
  constructor(key: string) {
    super(`The Redis key ${key} is damaged.`)
    this.key = key
  }
}
