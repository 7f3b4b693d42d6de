import type { Place, Quota } from './quota.ts'
import { type Allowance, allowanceOf } from './store.ts'

/** A place that a call in progress takes. */
export interface Lease extends Place {
  /** The local instant, in milliseconds, at which this gateway learned of it. */
  readonly heldAtMs: number
  /**
   * A question that is sent before this local instant, in milliseconds, finds the lease in the
   * store. From then on, the lease counts in addition to the store's. `-Infinity` if the store
   * was not asked to have it, or has lost it.
   */
  storedUntilMs: number
  /** False if the store was never asked to have it. */
  mayBeStored: boolean
  /** The local instant, in milliseconds, at which the place of a call that was left is free; `Infinity` in progress. */
  readonly endsAtMs: number
}

/** Time for which a place is kept after its caller left, in milliseconds: the upstream may work on the call. */
const KEPT_MS = 10_000

/** Wait until a refused call is retried, in milliseconds: the end of a call is unknown. */
export const CONCURRENT_WAIT_MS = 1000

/** Returns the allowance of a limit of calls at once. */
export const leaseAllowance = (quota: Quota, hasRoom: boolean, used: number, nowMs: number) => ({
  ...allowanceOf(quota, hasRoom, used, nowMs + CONCURRENT_WAIT_MS, CONCURRENT_WAIT_MS),
  windowMs: 0,
})

/** Fraction of a lease that a question takes at most. */
const LONGEST_QUESTION = 1 / 4
/**
 * A lease is renewed when less than this fraction is left until `storedUntilMs`: after a quarter of
 * its length, so that more than half is left when the renewal reaches the store, a turn of the
 * background later.
 */
const RENEWAL_AHEAD = 1 / 2

/** Returns `storedUntilMs` of a lease that the store was asked for at a local instant. */
export const storedUntil = ({ windowMs }: Quota, askedMs: number): number =>
  askedMs + (1 - LONGEST_QUESTION) * windowMs

/** Returns how long a lease that is renewed now is to last, in milliseconds. */
export const renewalMs = ({ quota, endsAtMs }: Lease, nowMs: number): number =>
  Math.min(quota.windowMs, Math.max(0, endsAtMs - nowMs))

/** Records that the store was asked at a local instant to renew a lease, and has done it. */
export function renewed(lease: Lease, askedMs: number): void {
  // One that ends is not renewed again.
  lease.storedUntilMs = lease.endsAtMs < Infinity ? lease.endsAtMs : storedUntil(lease.quota, askedMs)
}

/** True if a lease is to be renewed: a quarter of its length has passed, it ends earlier now, or it is not stored. */
function isDue({ quota, storedUntilMs, endsAtMs }: Lease, nowMs: number): boolean {
  if (endsAtMs < Infinity) return storedUntilMs < endsAtMs
  return storedUntilMs - nowMs < RENEWAL_AHEAD * quota.windowMs
}

/** Returns the instant at which a call began, in epoch milliseconds of the store's clock. */
const beganAt = ({ id }: Lease): number => Number.parseInt(id, 10) / 1000

/** The calls that take places at this gateway, by the keys of their limits of calls at once. */
export class Leases {
  readonly #held = new Map<string, Map<string, Lease>>()
  /** Lower bound of `storedUntilMs` of all leases: before it, the store counts every lease. */
  #storedUntilMs = Infinity

  keys = (): IterableIterator<string> => this.#held.keys()

  has = ({ quota, id }: Place): boolean => this.#held.get(quota.key)?.has(id) === true

  count = (key: string): number => this.#held.get(key)?.size ?? 0

  #leasesOf = (key: string): readonly Lease[] => [...(this.#held.get(key)?.values() ?? [])]

  /** Returns the instant at which the oldest call of a key began; undefined if there is none. */
  since(key: string): number | undefined {
    return this.count(key) === 0 ? undefined : Math.min(...this.#leasesOf(key).map(beganAt))
  }

  /** Returns the allowance of a limit under these calls, with the instant of the oldest if it is only read. */
  allowance(quota: Quota, hasRoom: boolean, nowMs: number, isRead: boolean): Allowance {
    const allowance = leaseAllowance(quota, hasRoom, this.count(quota.key), nowMs)
    return isRead ? { sinceAt: this.since(quota.key), ...allowance } : allowance
  }

  hold(quota: Quota, id: string, storedUntilMs: number, heldAtMs: number): void {
    const mayBeStored = storedUntilMs > -Infinity
    this.#set({ quota, id, heldAtMs, storedUntilMs, mayBeStored, endsAtMs: Infinity })
  }

  #set(lease: Lease): void {
    const { quota, id, storedUntilMs } = lease
    const held = this.#held.get(quota.key) ?? new Map<string, Lease>()
    this.#held.set(quota.key, held.set(id, lease))
    this.#storedUntilMs = Math.min(this.#storedUntilMs, storedUntilMs)
  }

  /**
   * Keeps the place of a call whose caller left until `endsAtMs`, at which it is to be ended: for
   * `KEPT_MS`, or the length of its lease if that is shorter. Returns its lease; undefined if the
   * call has none in this limit.
   */
  keep({ key, windowMs }: Quota, id: string, nowMs: number): Lease | undefined {
    const lease = this.#held.get(key)?.get(id)
    if (lease === undefined) return undefined
    const endsAtMs = nowMs + Math.min(KEPT_MS, windowMs)
    // Another object, as a renewal of the call in progress may be under way; due to be renewed to its new end.
    const kept = { ...lease, endsAtMs, storedUntilMs: Math.min(lease.storedUntilMs, endsAtMs - 1) }
    this.#set(kept)
    return kept
  }

  /** Ends a lease, and returns it; undefined if the call has none in this limit. */
  end({ key }: Quota, id: string): Lease | undefined {
    const held = this.#held.get(key)
    const lease = held?.get(id)
    held?.delete(id)
    if (held?.size === 0) this.#held.delete(key)
    return lease
  }

  /** Returns the leases of a key that the store may have lost. */
  countUnstored(key: string, nowMs: number): number {
    if (this.#storedUntilMs > nowMs) return 0
    return this.#leasesOf(key).filter(({ storedUntilMs }) => storedUntilMs <= nowMs).length
  }

  /**
   * Has the leases of a key that were held at a local instant stored again, if the store counted
   * too few calls since then.
   */
  doubt(key: string, counted: number, sinceMs: number): void {
    const before = this.#leasesOf(key).filter(({ heldAtMs }) => heldAtMs < sinceMs)
    if (counted > before.length) return
    for (const lease of before) lease.storedUntilMs = -Infinity
    this.#storedUntilMs = -Infinity
  }

  /** Returns the leases that are to be renewed. */
  dueForRenewal(nowMs: number): readonly Lease[] {
    const found: Lease[] = []
    this.#storedUntilMs = Infinity
    for (const held of this.#held.values())
      for (const lease of held.values()) {
        this.#storedUntilMs = Math.min(this.#storedUntilMs, lease.storedUntilMs)
        if (isDue(lease, nowMs)) found.push(lease)
      }
    return found
  }
}
