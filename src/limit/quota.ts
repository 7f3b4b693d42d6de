/**
 * A minute, an hour, a day, a week, a month, a quarter or a year. Instants are epoch milliseconds;
 * a period does not contain its end.
 */
export interface Period {
  readonly startMs: number
  readonly endMs: number
}

export interface Calendar {
  periodAt(epochMs: number): Period
}

/** Action while the store is unavailable: count in this process, admit every call, or refuse with a 503. */
export type OutageMode = 'local' | 'allow' | 'deny'

const STRICTEST_FIRST: readonly OutageMode[] = ['deny', 'local', 'allow']

/**
 * Returns what decides a call without the store: the strictest mode of its limits that may refuse
 * it; `local` if all are shadows; without limits, `onOutage` of the store.
 */
export function strictestMode(limits: readonly Pick<Quota, 'onOutage' | 'shadow'>[], onOutage: OutageMode) {
  if (limits.length === 0) return onOutage
  const modes = new Set(limits.filter(({ shadow }) => !shadow).map((limit) => limit.onOutage ?? onOutage))
  return STRICTEST_FIRST.find((mode) => modes.has(mode)) ?? 'local'
}

/**
 * A window that slides, or whose calls are those of a calendar period, which is as long at most. Of
 * calls at once: the length of a lease.
 */
export interface Window {
  readonly windowMs: number
  readonly calendar?: Calendar | undefined
}

/** A window, and the key whose calls it counts. */
export interface KeyedWindow extends Window {
  readonly key: string
}

/** Calls that belong together: those within the window of a charged call are free. */
export interface Access extends KeyedWindow {
  /** True for the calls of one token, whose access is under way as long as its charge counts. */
  readonly isOfToken: boolean
}

/** A limit applied to one caller, now, or a DPoP proof. */
export interface Quota extends KeyedWindow {
  readonly name: string
  readonly limit: number
  readonly shadow: boolean
  /**
   * Points of the limit that the call takes, or reserves until it is settled; undefined if every call
   * of the limit takes 1.
   */
  readonly cost?: number | undefined
  /** True for a DPoP proof, which passes once; the last quota of its call. */
  readonly isProof?: boolean
  readonly access?: Access | undefined
  readonly countsSuccess?: boolean | undefined
  /** True if the limit is one of calls at once: each has a lease, which lasts the window unless it is renewed. */
  readonly isConcurrent?: boolean | undefined
  readonly onOutage?: OutageMode | undefined
  /** Epoch milliseconds at which the override or the client's own limit ends, if one applies and ends. */
  readonly untilAt?: number | undefined
  /** The limit whose counter the key is, if not that of the quota itself. */
  readonly counts?: string | undefined
  /** Shadow quotas of the same key, which are never charged. */
  readonly shadowShares?: readonly Quota[]
}

/** The name of a place in a limit of calls at once: all that is needed to end its lease. */
export interface Place {
  readonly quota: Quota
  /**
   * The same in all limits of the call: when it began by the store's clock, in microseconds, its
   * gateway, and a number.
   */
  readonly id: string
}

/** True for a limit of calls at once. */
export const isLeased = ({ isConcurrent = false }: Quota): boolean => isConcurrent

/**
 * Maximum limit whose calls have slots of their own. Above it, the calls of a thousandth of the
 * window share a slot, and its last call's time. The same as `EXACT` of redis/layout.lua.
 */
export const MAX_EXACT = 1000

/**
 * Returns for how long after a call its slot may still get others, in microseconds: under any limit
 * of its window, or to the end of the calendar period of its instant (epoch milliseconds).
 */
export const sharedUs = ({ windowMs, calendar }: Window, madeAtMs: number): number =>
  calendar === undefined
    ? Math.ceil((windowMs * 1000) / MAX_EXACT)
    : Math.round((calendar.periodAt(madeAtMs).endMs - madeAtMs) * 1000) - 1

/** Returns the used points at which a quota has no room for its call. */
export const fullAt = ({ limit, cost = 1 }: Pick<Quota, 'limit' | 'cost'>) => limit - cost + 1

/** Verdict of a quota on a call: charge it, admit it free during an access, or no room. */
export type Verdict = 'pays' | 'free' | 'none'

/**
 * Decides a quota with `used` points in its window. During an access a call needs no room, unless
 * the limit is 0 or has lost its calls.
 */
export function verdictOf({ limit }: Quota, used: number, hasRoom: boolean, isInAccess = false): Verdict {
  if (isInAccess && used > 0 && limit > 0) return 'free'
  return hasRoom ? 'pays' : 'none'
}

/** True if every quota has room for the call, or is a shadow: then all that say `pays` are charged. */
export const admits = (verdicts: readonly { quota: Quota; verdict: Verdict }[]): boolean =>
  verdicts.every(({ quota, verdict }) => quota.shadow || verdict !== 'none')
