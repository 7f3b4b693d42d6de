import type { ClientLimit, Limit } from '../../src/policy/limit.ts'
import { type Override, overrideKey } from '../../src/policy/overrides.ts'
import type { Action, History, LimitName, Rule } from './history.ts'
import type { World } from './time.ts'

/** A rule of a limit that is in force from an instant on; an override also replaces the clients' own limits. */
export type TimedRule = Rule & { readonly fromMs: number; readonly isOverride?: boolean }
export type Rules = Readonly<Record<LimitName, readonly TimedRule[]>>

/** A change at a date is announced for as long. */
const CHANGE_MS = 500
const CLIENTS = ['c1', 'c2', 'c3', 'c4', 'quiet']

/** Creates the limits of a history, which change while it is played. */
export function createChanges(history: History, world: World) {
  const { clock } = world.createLoop()
  let limits: readonly Limit[] = Object.entries(history.limits).map(([name, rule]) => limitOf(name, rule))
  const rules: Record<LimitName, TimedRule[]> = {
    requests: [{ ...history.limits.requests, fromMs: 0 }],
    sync: [{ ...history.limits.sync, fromMs: 0 }],
  }
  const overrides = new Map<string, Override>()
  const clientLimits = new Map<string, Map<string, ClientLimit>>()
  for (const { client, name, ...own } of history.own ?? [])
    clientLimits.set(client, (clientLimits.get(client) ?? new Map<string, ClientLimit>()).set(name, own))

  /** The rule of each limit in the file, and the limits that come before it. */
  const files = { ...history.limits }
  const others: Record<
    LimitName,
    { date?: number | undefined; override?: number | undefined; setBy?: number }
  > = {
    requests: {},
    sync: {},
  }
  function begin({ number, ms, name, rule, by }: Action & { kind: 'change' }): void {
    if (by === 'file') files[name] = rule
    if (by === 'file') others[name].date = undefined
    else others[name][by] = rule.limit
    const { limit, windowMs } = files[name]
    const { date, override } = others[name]
    rules[name].push({
      limit: override ?? date ?? limit,
      windowMs,
      fromMs: world.now() + (by === 'date' ? CHANGE_MS : 0),
      isOverride: override !== undefined,
    })
    if (by === 'override') {
      others[name].setBy = number
      const untilAt = ms === 0 ? undefined : clock.date() + ms
      if (ms > 0) world.at(world.now() + ms, () => endOverride(name, number))
      for (const client of CLIENTS) {
        const caller = [{ word: 'client', value: client }]
        const override = { caller, name, limit: rule.limit, untilAt, setAt: 0 }
        overrides.set(overrideKey('s', override), override)
      }
      return
    }
    const fromAt = clock.date() + CHANGE_MS
    const added = { announcedAt: 0, fromAt, limit: rule.limit }
    limits = limits.map((other) => {
      if (other.name !== name) return other
      return { ...limitOf(name, files[name]), changes: by === 'date' ? [...other.changes, added] : [] }
    })
  }

  function endOverride(name: LimitName, setBy: number): void {
    if (others[name].setBy !== setBy) return
    others[name].override = undefined
    const { limit, windowMs } = files[name]
    rules[name].push({ limit: others[name].date ?? limit, windowMs, fromMs: world.now() })
  }

  return {
    get limits() {
      return limits
    },
    ...{ overrides, clientLimits, rules, begin },
  }
}

/** Returns the limit of the configuration that a rule describes. */
export const limitOf = (name: string, { kind, calendar, ...rule }: Rule): Limit => ({
  name,
  per: ['client'],
  ...rule,
  ...(kind === 'access' && { together: togetherMs(rule) }),
  ...((kind === 'calendar' || kind === 'success') && {
    calendar: calendar ?? { unit: 'minute', timezone: 'UTC' },
  }),
  countsSuccess: kind === 'success',
  ...(kind === 'atOnce' && { isConcurrent: true }),
  shadow: rule.shadow ?? false,
  changes: [],
})

/** Returns the length of an access. */
export const togetherMs = ({ windowMs }: Pick<Rule, 'windowMs'>): number => windowMs / 4
