import { LRUCache } from 'lru-cache'
import { atMost } from '../runtime/at-most.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { isPerClient } from '../policy/key.ts'
import { callerKey } from '../policy/caller-keys.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'
import type { CalendarName } from '../policy/calendar.ts'
import type { Limit } from '../policy/limit.ts'
import type { LimitOptions } from '../policy/apply.ts'
import type { Quota } from '../limit/quota.ts'
import { calendarOf, type ClientRules, quotaOf, rulesOf, upcomingChanges } from '../policy/rule.ts'
import { claimedBy } from '../policy/conditions.ts'
import type { Caller } from '../policy/facts.ts'
import { planOf } from '../policy/plans.ts'
import type { Allowance, Store } from '../limit/store.ts'

/** The usage of a limit by a caller now. Instants are ISO 8601 in UTC. */
export interface LimitUsage {
  readonly name: string
  /** The calls that the caller may make in a window, or at once. */
  readonly limit: number
  /** The calls that it may still make now: 3 after two calls of a limit of 5. */
  readonly remaining: number
  /** The length of the window, or of the present calendar period. Absent for calls at once. */
  readonly windowSeconds?: number
  readonly calendar?: CalendarName
  /** The calls at once, and when the oldest of them, or of 100 of them, began; null if there is none. */
  readonly inProgress?: number
  readonly oldest?: string | null
  /** When `remaining` next grows. */
  readonly reset: string
  /** The future values of the limit that are announced, in order. */
  readonly changes: ReturnType<typeof upcomingChanges>
}

/** Reads what limits count, for requests. Charges nothing, and rejects if the store does not answer. */
export interface Usage {
  /** Returns the allowance of a quota, up to a second old. */
  read(quota: Quota): Promise<Allowance>
  /**
   * Drops the cached allowances of quotas that were just charged: a caller must not read more than
   * the response to its call said.
   */
  drop(quotas: readonly Quota[]): void
  /** Returns the live limits that are counted only per client, up to a second old, and the plan of the client. */
  ofCaller(caller: Caller): Promise<{ plan?: string; limits: readonly LimitUsage[] }>
  /** Drops all cached allowances: after a reset. */
  forget(): void
}

interface UsageOptions extends LimitOptions {
  readonly store: Pick<Store, 'peek'>
  readonly limits: readonly Limit[]
}

/** Returns an instant, in epoch milliseconds, as ISO 8601. */
export const instantOrNull = (ms: number | undefined) => (ms === undefined ? null : instant(ms))

/** Returns the usage of a limit from the store's answer, under the rules of the caller. */
export function usageOf(allowance: Allowance, rule: Limit, rules: ClientRules, nowMs: number): LimitUsage {
  const { name, limit, remaining, used, windowMs, resetAt, sinceAt } = allowance
  const announced = rule.changes.filter(({ announcedAt }) => announcedAt <= nowMs)
  const changes = upcomingChanges({ ...rule, changes: announced }, nowMs, rules)
  const period = calendarOf(rule)?.periodAt(nowMs)
  const lengthMs = period === undefined ? windowMs : period.endMs - period.startMs
  const counted = rule.isConcurrent
    ? { inProgress: used, oldest: instantOrNull(sinceAt) }
    : { windowSeconds: lengthMs / 1000, ...(rule.calendar && { calendar: rule.calendar }) }
  return { name, limit, remaining, ...counted, reset: instant(resetAt), changes }
}

export function createUsage(options: UsageOptions): Usage {
  const { store, prefix, limits, plans } = options
  const perClient = limits.filter((limit) => isPerClient(limit) && !limit.shadow)
  /**
   * Allowances by key, then by limit and the number that is in force for the caller's token, for a
   * second: Redis must not be loaded by queries, which are not limited.
   */
  const cache = new LRUCache<string, Map<string, Promise<Allowance>>>({ ...atMost(10_000), ttl: 1000 })

  function read(quota: Quota): Promise<Allowance> {
    const ofKey = cache.get(quota.key) ?? new Map<string, Promise<Allowance>>()
    const asked = `${quota.name} ${quota.limit}`
    const cached = ofKey.get(asked)
    if (cached !== undefined) return cached
    const allowance = store.peek([quota]).then(([allowance]) => allowance!)
    // Kept for a second from the first on.
    if (ofKey.set(asked, allowance).size === 1) cache.set(quota.key, ofKey)
    allowance.catch(() => cache.delete(quota.key))
    return allowance
  }

  return {
    read,
    drop(quotas) {
      if (cache.size > 0) for (const { key } of quotas) cache.delete(key)
    },
    async ofCaller(caller) {
      const nowMs = SYSTEM_CLOCK.date()
      const { client = '' } = caller
      const counted: CountedCaller = [{ word: 'client', value: client }]
      const usages = perClient.map(async (rule) => {
        const key = callerKey(prefix, rule, counted)
        const claimed = rule.claim && claimedBy(rule.claim, caller)
        const rules = { ...rulesOf(options, rule, key, caller), claimed }
        const quota = quotaOf(rule, key, nowMs, rules)
        const usage = usageOf(await read(quota), rule, rules, nowMs)
        // Hides from a client that an operator blocked when that ends.
        return quota.source === 'override' && quota.limit === 0 ? { ...usage, changes: [] } : usage
      })
      const plan = plans && planOf(plans, caller)
      return { ...(plan !== undefined && { plan }), limits: await Promise.all(usages) }
    },
    forget: () => cache.clear(),
  }
}
