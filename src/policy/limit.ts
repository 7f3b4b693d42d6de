import type { Actual } from '../actual/actual.ts'
import type { FixedReply } from '../errors.ts'
import type { OutageMode } from '../limit/quota.ts'
import type { CalendarName } from './calendar.ts'
import type { ClaimedLimit, Conditional } from './conditions.ts'
import type { KeyedLimit } from './key.ts'
import type { Parameters } from './parameter-kinds.ts'

/**
 * Minimum length of a lease of a call at once, in milliseconds: Redis may be slow for a while
 * before leases are renewed.
 */
export const MIN_LEASE_MS = 2000
/**
 * Maximum length of a lease, in milliseconds, also if the timeout of its route is longer: the calls
 * of a gateway that was killed keep their places until then. Leases of longer calls are renewed.
 */
export const MAX_LEASE_MS = 30_000

/**
 * A named limit of the configuration: the calls that each key may make per window, or at once with
 * `isConcurrent`. The latter has no claim, points, calendar, `counts` or `together`, and does not
 * count success: its section refuses them.
 */
export interface Limit extends KeyedLimit, Conditional {
  /** The default, if `claim` is set. */
  readonly limit: number
  readonly claim?: ClaimedLimit
  /** True if the calls of some route take more than one: the limit then counts points, not calls. */
  readonly inPoints?: boolean
  /** Points that a call takes, in the limits in points of a route. */
  readonly cost?: number
  /** The place in the response of what a call at a route used; until it is read, `cost` is charged. */
  readonly actual?: Actual | undefined
  /**
   * Length of the longest possible period, if `calendar` is set, or of a lease of a call in
   * progress.
   */
  readonly windowMs: number
  /** The periods of the calendar in which calls are counted, in place of a window that slides. */
  readonly calendar?: CalendarName
  /** True if a call takes no points if its response is an error. */
  readonly countsSuccess?: boolean | undefined
  /** Replaces that of the store. */
  readonly onOutage?: OutageMode | undefined
  /**
   * True if the limit is left out of a request that lacks a part of its key, which otherwise is
   * refused.
   */
  readonly skipsMissing?: boolean
  /** Replaces the 429. */
  readonly refusal?: FixedReply
  /** True if the limit is counted and reported, but never refuses. */
  readonly shadow: boolean
  /** The kinds of the team whose file has the limit; undefined for the main file. */
  readonly parameters?: Parameters | undefined
  /** Announced changes of `limit`, in the order in which they take effect. */
  readonly changes: readonly Change[]
}

/** An announced change of a limit. Instants are epoch milliseconds. */
interface Change {
  readonly announcedAt: number
  readonly fromAt: number
  /** The number of calls from then on. */
  readonly limit: number
}

/**
 * A client's own limit of the file, which replaces the named limit and its changes until `untilAt`.
 */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number | undefined
}

/** The clients' own limits: client id → limit name → limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>
