import { type KeyFilter, limitNameOf } from './key.ts'
import { type Access, fullAt, type OutageMode, type Place, type Quota } from './quota.ts'

/** The state of a key under a quota, at the instant of a decision. */
export interface Allowance {
  readonly name: string
  readonly limit: number
  /** 0 for calls at once, which have no window. */
  readonly windowMs: number
  /**
   * Calls in progress, or points in the window, after this call if it was charged; above `limit`
   * after the limit was lowered. A call takes 1, or its cost. In mode `local`, those that the store
   * last reported and the gateway's own.
   */
  readonly used: number
  /** Points that the calls of the key may still take; in mode `local`, at this gateway. */
  readonly remaining: number
  /** The points of `limit` that this gateway may admit in mode `local` if the store has counted none. */
  readonly part?: number | undefined
  /** Epoch milliseconds at which `remaining` next grows; of a quota that refuses, at which the next call can pass. */
  readonly resetAt: number
  /** Milliseconds, with fractions, from the store's now to `resetAt`. */
  readonly resetAfterMs: number
  /**
   * Milliseconds, with fractions, until the next call of this cost can pass; 0 if the quota has
   * room, and points remain.
   */
  readonly retryAfterMs: number
  /** True if this quota had room for the call, whether or not the other quotas had. */
  readonly admitted: boolean
  readonly shadow: boolean
  /**
   * The used points of own calls, which the gateway admitted by itself and the store does not have; 0
   * in mode `local`.
   */
  readonly own: number
  /** The number of the gateway's merge that the store has, as this answer shows before that to the merge. */
  readonly merged?: number | undefined
  /** Epoch milliseconds at which the oldest call in progress began, if the calls at once were read. */
  readonly sinceAt?: number | undefined
  /** The state of the access that the call belongs to. */
  readonly access?: CountedAccess | undefined
}

/** The charged calls of an access, until `resetAfterMs`, and of these those that the store does not have. */
export type CountedAccess = Pick<Allowance, 'used' | 'resetAfterMs' | 'own'>

/** Returns the part of a limit to which a gateway without the store is bound; undefined if it is the whole limit. */
export const boundOf = ({ limit, part = limit }: Pick<Allowance, 'limit' | 'part'>): number | undefined =>
  part < limit ? part : undefined

/** Creates an allowance; `growsAt` is in epoch milliseconds with fractions. */
export function allowanceOf(
  { name, limit, windowMs, shadow, calendar }: Quota,
  admitted: boolean,
  used: number,
  growsAt: number,
  resetAfterMs: number,
  own = 0,
): Allowance {
  // A period ends at a whole millisecond, from which the sum of fractions differs by less than a microsecond.
  const resetAt = calendar === undefined ? Math.ceil(growsAt) : Math.round(growsAt)
  const remaining = Math.max(0, limit - used)
  const retryAfterMs = admitted && remaining > 0 ? 0 : resetAfterMs
  return {
    name,
    limit,
    windowMs,
    used,
    remaining,
    resetAt,
    resetAfterMs,
    retryAfterMs,
    admitted,
    shadow,
    own,
  }
}

/** The outcome of a call under its quotas. */
export interface Charge {
  /** True if every quota that is not shadow had room, and so all were charged; of a read, would have been. */
  readonly admitted: boolean
  /** Allowances of the limits, in their order; empty if `mode` is `allow`. */
  readonly allowances: readonly Allowance[]
  /** That of the call's DPoP proof, if it has one. */
  readonly proof: Allowance | undefined
  /** `store` if the store decided, otherwise the fallback that did while the store was unavailable. */
  readonly mode: 'store' | 'local' | 'allow'
  /** Epoch milliseconds of the store's clock, or of this gateway's if the fallback decided. */
  readonly decidedAt?: number | undefined
  /**
   * The instant at which an admitted call counts, in microseconds: of the store's clock, in mode
   * `local` of this gateway's. Its settlement names it.
   */
  readonly chargedUs?: number | undefined
  /** The latest instant of this gateway's clock, in milliseconds, at which the store can have decided. */
  readonly localMs?: number | undefined
  /** The id of the leases of an admitted call, which are to be released when it ends. */
  readonly lease?: string | undefined
}

/**
 * Returns the allowance of a shadow share by that of the live quota of its key. Without room,
 * `resetAt` may be earlier than the next call of the share.
 */
function shadowAllowance(share: Quota, live: Allowance, isCharged: boolean): Allowance {
  const { used, resetAt, resetAfterMs, own } = live
  const hasRoom = isCharged ? used <= share.limit : used < fullAt(share)
  return allowanceOf(share, hasRoom, used, resetAt, resetAfterMs, own)
}

/**
 * Makes the outcome of the allowances of all quotas, in their order, then those of shadow shares.
 * Copying the outcome by `...`: 350 bytes a call in the old space.
 */
export function chargeOf(
  quotas: readonly Quota[],
  all: Allowance[],
  { admitted, mode, decidedAt, chargedUs, localMs, lease }: Omit<Charge, 'allowances' | 'proof'>,
): Charge {
  const hasProof = quotas.at(-1)?.isProof === true
  const allowances = hasProof ? all.slice(0, -1) : all
  for (let i = 0; i < quotas.length; i++) {
    const { shadowShares } = quotas[i]!
    if (shadowShares === undefined) continue
    for (const share of shadowShares) allowances.push(shadowAllowance(share, all[i]!, admitted))
  }
  const proof = hasProof ? all.at(-1) : undefined
  const ended = admitted ? lease : undefined
  return { admitted, allowances, proof, mode, decidedAt, chargedUs, localMs, lease: ended }
}

/** Returns the allowance of the quota at `i`; a proof is the last of the quotas. */
export const allowanceAt = ({ allowances, proof }: Charge, i: number, { isProof }: Quota): Allowance =>
  isProof === true ? proof! : allowances[i]!

/** Calls that a gateway admitted by itself at one instant of its clock, in microseconds. */
export interface OwnCall {
  readonly atUs: number
  /** Their points. */
  readonly calls: number
  readonly access?: Access | undefined
}

/**
 * Calls of a key that a gateway admitted by itself. The store merges them once, even if the merge is
 * sent again.
 */
export interface Merge {
  /** Greater than that of each earlier merge of this gateway. */
  readonly number: number
  readonly quota: Quota
  /** Oldest first. */
  readonly calls: readonly OwnCall[]
  /**
   * Milliseconds by which the instants are later than the calls: how far the estimates of the
   * server's clock were apart.
   */
  readonly spreadMs: number
}

/** The difference between what an admitted call used of a limit and what it was charged. */
export interface Correction {
  readonly quota: Quota
  /** The points that it used beyond its charge; negative if it used fewer. */
  readonly points: number
}

/** A correction, and the call that it is about. */
export interface Settlement extends Correction {
  /** The instant of its charge, in microseconds: of the store's clock, of this gateway's if it has a spread. */
  readonly chargedUs: number
  /**
   * Milliseconds by which the store may have taken the call for later, if the gateway admitted it by
   * itself.
   */
  readonly spreadMs?: number | undefined
}

/**
 * Settlements of calls. The store does each once, even if they are sent again. Their keys share a
 * slot.
 */
export interface Settlements {
  /** Greater than that of all earlier settlements of this gateway. */
  readonly number: number
  readonly all: readonly Settlement[]
}

/** Points of calls that this gateway admitted by itself, which count in addition to the store's. */
export interface OwnCount {
  readonly calls: number
  /** Points of other calls, which the store has if it has done the merge with this number, or a later one. */
  readonly sent: number
  readonly number: number
  /** Milliseconds by which the instants of the calls may be ahead. */
  readonly spreadMs: number
}

/** The calls of a gateway that the store does not have, or may not have. */
export interface OwnCalls {
  isEmpty(): boolean
  /** Returns the calls in progress of a key that the store may not have. */
  unstored(key: string): number
  /**
   * Returns the calls of a key after an instant of this gateway's clock, in milliseconds, or those
   * of them that began an access; undefined if there are none.
   */
  since(key: string, atMs: number, accessKey?: string): OwnCount | undefined
}

/** The part of a charge that the settlement of its call needs. */
export type Charged = Pick<Charge, 'mode' | 'chargedUs' | 'decidedAt'>

/** The counters. Every store gives the same answers on the same clock. */
export interface Store {
  /** Decides all quotas at once: charges each that is to be paid, or none. Rejects without an answer. */
  charge(quotas: readonly Quota[]): Charge | Promise<Charge>
  /** Returns the allowances that `charge` would, without charging. */
  peek(quotas: readonly Quota[]): Promise<readonly Allowance[]>
  /**
   * Charges an admitted call what it used, at the instant of its charge, as long as that is in the
   * window. Resolves when the store has the corrections, or will get them later.
   */
  settle(charge: Charged, corrections: readonly Correction[]): void | Promise<void>
  /** Ends the leases of a call; ten seconds later if the upstream may go on with it. */
  release(quotas: readonly Quota[], lease: string, mayGoOn?: boolean): void
  /**
   * Returns the refusal of a limit of calls at once that is full with calls of this gateway;
   * undefined if the store is to be asked.
   */
  ownRefusal(quota: Quota): Allowance | undefined
  /**
   * Returns up to `max` matching keys, also without calls in the window. May scan until `signal`
   * aborts. Rejects if a server is down.
   */
  keys(filter: KeyFilter, max?: number, signal?: AbortSignal): Promise<readonly string[]>
  /** Deletes every key that matches a filter, and returns their number. May scan all keys, as `keys` does. */
  reset(filter: KeyFilter, signal?: AbortSignal): Promise<number>
  close(): Promise<void>
}

/** A store that answers at once, as it keeps the counters in this process. */
export interface ImmediateStore extends Store {
  charge(quotas: readonly Quota[]): Charge
}

/** The allowance of a quota, and what decides it: the store, or what this gateway does without the store. */
export interface Inspected {
  readonly allowance: Allowance
  readonly mode: 'store' | OutageMode
}

/**
 * A store that operators can also read while it does not answer: then this gateway's own counters,
 * with its part of each limit.
 */
export interface InspectedStore extends Store {
  inspect(quotas: readonly Quota[]): Promise<readonly Inspected[]>
}

/** Called with the outcome of each question to a server of a store, which may have decided several calls. */
export type OnReply = (server: string, error?: Error) => void

/**
 * Counters that all gateways share, on one server or several that may fail one by one: what a
 * fallback needs of them. `server` is the name of one; a key has the same server until the servers
 * change. Times of a server are by its own clock.
 */
export interface RemoteStore extends Pick<Store, 'keys' | 'reset' | 'close'> {
  /** The id of this gateway, which no other has. */
  readonly id: string
  /** Sets the listener to the outcomes of questions. */
  listen(listener: OnReply): void
  /**
   * Decides as `Store.charge`, with the calls that this gateway admitted by itself; `lease` is the id
   * of the call's leases. Rejects without an answer, although the server may have charged the call.
   */
  charge(quotas: readonly Quota[], own?: OwnCalls, lease?: string): Promise<Charge>
  peek(quotas: readonly Quota[], own?: OwnCalls): Promise<readonly Allowance[]>
  /**
   * Merges calls, once; resolves with what their key then has. Rejects if they may not be merged:
   * the same merge is to be sent again.
   */
  merge(own: Merge): Promise<Charge>
  /** Settles calls, once. Rejects if they may not be settled: the same settlements are to be sent again. */
  settle(settlements: Settlements): Promise<void>
  /** Ends leases of one server. */
  endLeases(leases: readonly Place[]): Promise<void>
  /** Makes leases of one slot last as many milliseconds from now as `lengths` says. */
  renewLeases(leases: readonly Place[], lengths: readonly number[]): Promise<void>

  /** The server of a key. */
  server(key: string): string
  servers(): readonly string[]
  /** A number that two keys share only if one question can be about both. */
  slot(key: string): number
  /** The time of a key's server at a local instant, in epoch milliseconds; undefined if it is unknown. */
  dateAt(key: string, localMs: number): number | undefined
  /** The uncertainty of that time, in milliseconds; undefined if it is unknown. */
  spreadMs(key: string): number | undefined
  /** The last known number of gateways that share the counters, at least 1. */
  gateways(): number

  /**
   * Resolves if a server can decide calls, or is none any more; with `needsRoom`, only if it has
   * room for more keys.
   */
  probe(server: string, needsRoom?: boolean): Promise<void>
  /** Replaces the connection to a server, which does not answer or is a wrong one. */
  reconnect(server: string, cause: Error): void
  /** True if a server refused a write because it is full. */
  isFull(error: Error): boolean
}

/** A server did not answer in time. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError'
}

/** A key of the store does not hold a log of calls. The decision fails, but the server is healthy. */
export class DamagedKeyError extends Error {
  override readonly name = 'DamagedKeyError'
  readonly key: string
  constructor(key: string) {
    // The key may hold a secret: the value of a header field.
    super(`A Redis key of the limit "${limitNameOf(key)}" is damaged.`)
    this.key = key
  }
}
