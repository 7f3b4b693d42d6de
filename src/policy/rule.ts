import type { Calendar, Quota } from '../limit/quota.ts'
import { instant } from '../runtime/instant.ts'
import { type CalendarName, createCalendar } from './calendar.ts'
import type { Caller } from './facts.ts'
import type { ClientLimit, ClientLimits, Limit } from './limit.ts'
import { isActive, type Override, overrideOf, type Overrides } from './overrides.ts'
import { planOf, type PlanNumber, type Plans } from './plans.ts'

/**
 * The rules of one caller that replace a limit's own number of calls: an override, its own limit of
 * the file, the number of its plan, the value in its token.
 */
export interface ClientRules {
  readonly override?: Override | undefined
  readonly clientLimit?: ClientLimit | undefined
  readonly byPlan?: PlanNumber | undefined
  readonly claimed?: number | undefined
}
const NO_RULES: ClientRules = {}

/** The rules of all callers. */
export interface AllRules {
  readonly clientLimits?: ClientLimits | undefined
  readonly overrides?: Overrides | undefined
  readonly plans?: Plans | undefined
}

/** Returns the rules of a key under a limit, and of the client that it counts, if any, with the plan of its token. */
export function rulesOf(
  { clientLimits, overrides, plans }: AllRules,
  limit: Limit,
  key: string,
  { client, plan }: Pick<Caller, 'client' | 'plan'>,
): ClientRules {
  const clientLimit = client === undefined ? undefined : clientLimits?.get(client)?.get(limit.name)
  const override = overrides?.size ? overrideOf(overrides, limit, key) : undefined
  const planned = plans && limit.per.includes('client') ? planOf(plans, { client, plan }) : undefined
  const byPlan = planned === undefined ? undefined : plans!.numbers.get(planned)?.get(limit.name)
  if (clientLimit === undefined && override === undefined && byPlan === undefined) return NO_RULES
  return { clientLimit, override, byPlan }
}

/** The rule in force, in the order in which they replace each other. */
export type RuleSource = 'override' | 'client' | 'plan' | 'change' | 'claim' | 'limit'

/** A limit applied to a key at an instant, and the rule that sets its number of calls. */
export interface AppliedQuota extends Quota {
  readonly source: RuleSource
}

/**
 * Applies a limit to a key at an instant (epoch milliseconds). An override does not change the
 * window; the client's own window holds as long as its own limit has not ended.
 */
export function quotaOf(limit: Limit, key: string, nowMs: number, rules: ClientRules = NO_RULES) {
  const { override, byPlan, claimed } = rules
  const clientLimit = rules.clientLimit && isActive(rules.clientLimit, nowMs) ? rules.clientLimit : undefined
  const windowMs = clientLimit?.windowMs ?? limit.windowMs
  if (override && isActive(override, nowMs))
    return applied(limit, key, windowMs, 'override', override.limit, override.untilAt)
  if (clientLimit !== undefined)
    return applied(limit, key, windowMs, 'client', clientLimit.limit, clientLimit.untilAt)
  if (byPlan !== undefined) return applied(limit, key, windowMs, 'plan', byPlan.limit)
  const hasChanged = limit.changes.length > 0 && limit.changes[0]!.fromAt <= nowMs
  if (hasChanged) return applied(limit, key, windowMs, 'change', changeAt(limit, nowMs)!.limit)
  if (claimed !== undefined) return applied(limit, key, windowMs, 'claim', claimed)
  return applied(limit, key, windowMs, 'limit', limit.limit)
}

/** Returns the quota of a limit whose number of calls and end are those of the rule in force. */
function applied(
  limit: Limit,
  key: string,
  windowMs: number,
  source: RuleSource,
  calls: number,
  untilAt?: number,
): AppliedQuota {
  const { name, shadow, countsSuccess, onOutage, cost, counts, isConcurrent } = limit
  return {
    name,
    key,
    limit: calls,
    windowMs,
    calendar: calendarOf(limit),
    shadow,
    cost,
    countsSuccess,
    isConcurrent,
    onOutage,
    untilAt,
    counts,
    source,
  }
}

/** Returns the latest of the changes, which are in order. */
const changeAt = ({ changes }: Limit, nowMs: number) => changes.findLast(({ fromAt }) => fromAt <= nowMs)

const calendars = new WeakMap<CalendarName, Calendar>()

/** Returns the calendar of a limit, which all its quotas share. */
export function calendarOf({ calendar: name }: Limit): Calendar | undefined {
  if (name === undefined) return undefined
  if (!calendars.has(name)) calendars.set(name, createCalendar(name))
  return calendars.get(name)
}

/** Returns, in words for operators, why a limit has its number of calls for a client. */
export function reasonOf(limit: Limit, source: RuleSource, atMs: number, rules: ClientRules) {
  const { clientLimit, override, byPlan } = rules
  if (source === 'override') return overrideReason(override!)
  if (source === 'client') return `the client's own limit of the file${until(clientLimit!.untilAt)}`
  // The client's own limit would be the source if it had not ended.
  const ended = clientLimit ? `; the client's own limit ended at ${instant(clientLimit.untilAt!)}` : ''
  if (source === 'plan') return `the plan ${byPlan!.plan}${ended}`
  if (source === 'change') return `changed at ${instant(changeAt(limit, atMs)!.fromAt)}${ended}`
  if (limit.claim === undefined) return `the limit of the file${ended}`
  return `the claim ${limit.claim.name} of the token, or its default${ended}`
}

function overrideReason({ untilAt, setAt, by, note }: Override): string {
  const end = until(untilAt) || ', without an end'
  const who = by === undefined ? '' : ` by ${by}`
  return `an override${end}, set at ${instant(setAt)}${who}${note === undefined ? '' : `: ${note}`}`
}

const until = (untilAt: number | undefined): string =>
  untilAt === undefined ? '' : `, until ${instant(untilAt)}`

/**
 * Returns the future values of a limit for a client, in order. `announced` is null for the end of
 * the client's own limit.
 */
export function upcomingChanges(limit: Limit, nowMs: number, rules: ClientRules = {}) {
  const { clientLimit, override } = rules
  const overrideEnd = override?.untilAt
  const clientLimitEnd = clientLimit?.untilAt
  const turns = [
    ...limit.changes.map(({ fromAt, announcedAt }) => ({ fromAt, announced: instant(announcedAt) })),
    ...(overrideEnd === undefined ? [] : [{ fromAt: overrideEnd, announced: instant(override!.setAt) }]),
    ...(clientLimitEnd === undefined ? [] : [{ fromAt: clientLimitEnd, announced: null }]),
  ]
  let before = quotaOf(limit, '', nowMs, rules)
  return turns
    .filter(({ fromAt }) => fromAt > nowMs)
    .toSorted((a, b) => a.fromAt - b.fromAt)
    .flatMap(({ fromAt, announced }) => {
      const next = quotaOf(limit, '', fromAt, rules)
      const isNewWindow = next.windowMs !== before.windowMs
      if (next.limit === before.limit && !isNewWindow) return []
      before = next
      const change = { announced, from: instant(fromAt), limit: next.limit }
      return isNewWindow ? [{ ...change, windowSeconds: next.windowMs / 1000 }] : [change]
    })
}
