import type { Caller } from '../authenticate/caller.ts'

/** A named rule as configured: so many calls per window for each key. */
export interface Limit {
  readonly name: string
  /** What the key is made of, in order: `client`, `user`, `ip`, or the name of a path parameter. */
  readonly per: readonly string[]
  readonly limit: number
  readonly windowMs: number
  /** Counts and reports, never refuses. */
  readonly shadow: boolean
  /** Announced changes of `limit`, in the order in which they take effect. */
  readonly changes: readonly Change[]
}

/** An announced change of a limit. Instants are epoch milliseconds. */
export interface Change {
  readonly announcedAt: number
  readonly fromAt: number
  readonly limit: number
}

/** A client's own limit, which beats the named one and its changes until `untilAt`. */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number
}

/** The own limits of every client that has some: client id → limit name → its limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>

/** A limit applied to one caller, now: what a store is asked to charge. */
export interface Quota {
  readonly name: string
  readonly key: string
  readonly limit: number
  readonly windowMs: number
  readonly shadow: boolean
}

export type { Caller }
