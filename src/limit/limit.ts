import { type FixedReply, Refusal } from '../errors.ts'
import { type Calendar, createCalendar } from './calendar.ts'
import { accessKey, type KeyedLimit, proofKey } from './key.ts'
import { isActive, isOverridable, type Override, type Overrides } from './overrides.ts'
import type { Access, OutageMode, Quota } from './quota.ts'
import { claimedBy, type ClaimedLimit, type Conditional, excludedBy } from './rules/conditions.ts'
import { type Caller, type Facts, tokenHash } from './rules/facts.ts'
import { compileKey, type Parameters } from './rules/parts.ts'

/** A named limit of the configuration: the calls that each key may make per window. */
export interface Limit extends KeyedLimit, Conditional {
  /** The default, if `claim` is set. */
  readonly limit: number
  readonly claim?: ClaimedLimit
  /** Length of the longest possible period, if `calendar` is set. */
  readonly windowMs: number
  /** The periods of the calendar in which calls are counted, in place of a window that slides. */
  readonly calendar?: Pick<Calendar, 'unit' | 'timezone'>
  /** True if a call whose response is an error is given back. */
  readonly countsSuccess?: boolean
  /** Replaces that of the store. */
  readonly onOutage?: OutageMode
  /** True if the limit is left out of a request that lacks a part of its key, which otherwise is refused. */
  readonly skipsMissing?: boolean
  /** Replaces the 429. */
  readonly refusal?: FixedReply
  /** True if the limit is counted and reported, but never refuses. */
  readonly shadow: boolean
  /** Announced changes of `limit`, in the order in which they take effect. Instants are epoch milliseconds. */
  readonly changes: readonly Readonly<Record<'announcedAt' | 'fromAt' | 'limit', number>>[]
}

/** A client's own limit of the file, which replaces the named limit and its changes until `untilAt`. */
export interface ClientLimit {
  readonly limit: number
  readonly windowMs?: number
  readonly untilAt?: number | undefined
}

/** The clients' own limits: client id → limit name → limit. */
export type ClientLimits = ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>

/** Returns the quota that lets a DPoP proof pass once in `windowMs`; all replays of a proof share its key. */
export const proofQuota = (prefix: string, first: string, id: string, windowMs: number): Quota => ({
  ...{ name: 'proof', key: proofKey(prefix, first, id), limit: 1, windowMs, shadow: false, isProof: true },
})

/** The rules of one client that replace a limit's own number of calls: an override, its own limit of the file, the value in its token. */
export interface ClientRules {
  readonly set?: Override | undefined
  readonly own?: ClientLimit | undefined
  readonly claimed?: number | undefined
}
const NO_RULES: ClientRules = {}

export function rulesOf(
  { clientLimits, overrides }: Pick<LimitOptions, 'clientLimits' | 'overrides'>,
  client: string,
  name: string,
): ClientRules {
  const own = clientLimits?.get(client)?.get(name)
  const set = overrides?.get(client)?.get(name)
  return own === undefined && set === undefined ? NO_RULES : { own, set }
}

/** Returns the rule that sets the number of calls at an instant: the override, the client's own limit, the latest change, or the limit. */
export function inForce(limit: Limit, nowMs: number, { own, set }: ClientRules = NO_RULES) {
  if (set !== undefined && isActive(set, nowMs) && isOverridable(limit)) return set
  if (own !== undefined && isActive(own, nowMs)) return own
  return limit.changes.findLast(({ fromAt }) => fromAt <= nowMs) ?? limit
}

function accessOf(
  { name, key, windowMs, calendar }: Quota,
  together: number | 'token',
  facts: Facts,
): Access {
  if (together !== 'token') return { key: accessKey(key, name), windowMs: together, isOfToken: false }
  return { key: accessKey(key, name, tokenHash(facts)), windowMs, calendar, isOfToken: true }
}

const calendars = new Map<string, Calendar>()

/** Returns the calendar of a limit, which all its quotas share. */
export function calendarOf({ calendar }: Pick<Limit, 'calendar'>): Calendar | undefined {
  if (calendar === undefined) return undefined
  const { unit, timezone } = calendar
  const name = `${unit} ${timezone}`
  if (!calendars.has(name)) calendars.set(name, createCalendar(unit, timezone))
  return calendars.get(name)
}

/** Applies a limit to a key now. An override does not change the window. A value in the token counts if no other rule is in force. */
export function quotaOf(limit: Limit, key: string, nowMs: number, rules: ClientRules = NO_RULES): Quota {
  const { name, shadow, countsSuccess, onOutage } = limit
  const { own, claimed } = rules
  const rule: ClientLimit = inForce(limit, nowMs, rules)
  const windowMs = own?.windowMs !== undefined && isActive(own, nowMs) ? own.windowMs : limit.windowMs
  const calls = rule === limit ? (claimed ?? rule.limit) : rule.limit
  const quota: Quota = { name, key, limit: calls, windowMs, shadow, untilAt: rule.untilAt }
  if (limit.calendar === undefined && onOutage === undefined) return quota
  return { ...quota, calendar: calendarOf(limit), countsSuccess, onOutage }
}

export interface LimitOptions {
  readonly prefix: string
  readonly clientLimits?: ClientLimits | undefined
  readonly overrides?: Overrides | undefined
  readonly parameters?: Parameters
  /** Called for a claim that is present, but gives its limit no value. */
  readonly onBadClaim?: ((limit: Limit) => void) | undefined
}

/** Compiles a limit to a function that applies it to a request: a 400 or 403 if the request lacks a part of the key, undefined if the limit is left out. */
export function compileLimit(limit: Limit, options: LimitOptions) {
  const { name, claim, together } = limit
  const { prefix, parameters = {}, onBadClaim } = options
  const keyOf = compileKey(limit, prefix, parameters)
  return (caller: Caller, facts: Facts, nowMs: number): Quota | Refusal | undefined => {
    if (excludedBy(limit, caller, facts) !== undefined) return undefined
    const key = keyOf(caller, facts)
    if (typeof key !== 'string') return key
    const rules = rulesOf(options, caller.client ?? '', name)
    const claimed = claim && claimedBy(claim, caller, () => onBadClaim?.(limit))
    const quota = quotaOf(limit, key, nowMs, claimed === undefined ? rules : { ...rules, claimed })
    return together === undefined ? quota : { ...quota, access: accessOf(quota, together, facts) }
  }
}

/** Compiles the limits of a route to a function that applies them: a 400 or 403 if the request lacks a part of a key. */
export function compileLimits(limits: readonly Limit[], options: LimitOptions) {
  const compiled = limits.map((limit) => compileLimit(limit, options))
  return (caller: Caller, facts: Facts, nowMs: number): readonly Quota[] | Refusal => {
    const quotas: Quota[] = []
    for (const apply of compiled) {
      const applied = apply(caller, facts, nowMs)
      if (applied instanceof Refusal) return applied
      if (applied !== undefined) quotas.push(applied)
    }
    return quotas
  }
}
