import { LRUCache } from 'lru-cache'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { counterNameOf, decodePart, isPerClient } from '../policy/key.ts'
import { assertCounted, callerKey, callerKeys, showKey } from '../policy/caller-keys.ts'
import { type CountedCaller, formatCaller, showCaller } from '../policy/counted-caller.ts'
import type { CalendarName } from '../policy/calendar.ts'
import { parseKey } from '../limit/key.ts'
import type { Limit } from '../policy/limit.ts'
import type { LimitOptions } from '../policy/apply.ts'
import type { Quota } from '../limit/quota.ts'
import { calendarOf, type ClientRules, quotaOf, rulesOf, upcomingChanges } from '../policy/rule.ts'
import { isOverridable, listOverrides, type ListedOverride } from '../policy/overrides.ts'
import { claimedBy } from '../policy/conditions.ts'
import type { Caller } from '../policy/facts.ts'
import type { Allowance, Inspected, InspectedStore } from '../limit/store.ts'

export const MAX_KEYS = 1000

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

/** A counter of a caller, as operators read it. */
export interface CounterUsage extends LimitUsage {
  /** The key in the store, with shortened values of header fields and tokens. */
  readonly key: string
  readonly used: number
  /** The end of the override, or of the client's own limit. */
  readonly until: string | null
  /** True if an override is in force. */
  readonly override: boolean
  readonly shadow: boolean
  /** `store`, or this gateway's mode without Redis; `limit` is then its part of `whole`. */
  readonly mode: Inspected['mode']
  readonly whole: number
}

/** The counters of one caller, as operators read them. */
export interface CallerUsage {
  readonly caller: string
  /** The limits that count only by the caller, and each other key with calls. */
  readonly limits: readonly CounterUsage[]
  /** The client's own limits of the file, in force or not. */
  readonly own: readonly Pick<CounterUsage, 'name' | 'limit' | 'until'>[]
  /** Includes overrides without effect. */
  readonly overrides: readonly ListedOverride[]
  /** The limits that can be set for the caller. */
  readonly settable: readonly string[]
  /** True if the caller has more than `MAX_KEYS` counters. */
  readonly truncated: boolean
}

/**
 * Reads and resets what limits count. Charges nothing, and rejects if the store does not answer,
 * for a caller that no limit counts with an UncountedCaller.
 */
export interface Usage {
  /** Returns the allowance of a quota, up to a second old. */
  read(quota: Quota): Promise<Allowance>
  /**
   * Drops the cached allowances of quotas that were just charged: a caller must not read more than
   * the response to its call said.
   */
  drop(quotas: readonly Quota[]): void
  /** Returns the live limits that are counted only per client, up to a second old. */
  ofClient(client: string, claims?: Caller['claims']): Promise<{ limits: readonly LimitUsage[] }>
  /** Returns the counters of a caller. May scan the store. */
  ofCaller(caller: CountedCaller, signal?: AbortSignal): Promise<CallerUsage>
  /** Deletes every key of a caller, and returns their number. May scan the store. */
  free(caller: CountedCaller, signal?: AbortSignal): Promise<number>
  /** Drops all cached allowances: after a reset. */
  forget(): void
}

export interface UsageOptions extends LimitOptions {
  readonly store: Pick<InspectedStore, 'peek' | 'inspect' | 'keys' | 'reset'>
  readonly limits: readonly Limit[]
}

const instantOrNull = (ms: number | undefined) => (ms === undefined ? null : instant(ms))

function usageOf(allowance: Allowance, rule: Limit, rules: ClientRules, nowMs: number): LimitUsage {
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
  const { store, prefix, limits, clientLimits, overrides } = options
  const perClient = limits.filter((limit) => isPerClient(limit) && !limit.shadow)
  /** Allowances by key and limit, for a second: Redis must not be loaded by queries, which are not limited. */
  const cache = new LRUCache<string, Map<string, Promise<Allowance>>>({ max: 10_000, ttl: 1000 })

  /**
   * Applies its limit to a key, and the shares of that. The rules are also those of the client whom
   * it counts, if any.
   */
  function applyTo(key: string, nowMs: number) {
    const { name, parts } = parseKey(prefix, key)!
    const counting = limits.filter((limit) => counterNameOf(limit) === name)
    return counting.map((rule) => {
      const at = rule.per.indexOf('client')
      const client = at === -1 ? undefined : decodePart(parts[at] ?? '')
      const rules = rulesOf(options, rule, key, client)
      return { rule, rules, quota: quotaOf(rule, key, nowMs, rules) }
    })
  }

  function read(quota: Quota): Promise<Allowance> {
    const ofKey = cache.get(quota.key) ?? new Map<string, Promise<Allowance>>()
    const cached = ofKey.get(quota.name)
    if (cached !== undefined) return cached
    const allowance = store.peek([quota]).then(([allowance]) => allowance!)
    // Kept for a second from the first on.
    if (ofKey.set(quota.name, allowance).size === 1) cache.set(quota.key, ofKey)
    allowance.catch(() => cache.delete(quota.key))
    return allowance
  }

  return {
    read,
    drop(quotas) {
      if (cache.size > 0) for (const { key } of quotas) cache.delete(key)
    },
    async ofClient(client, claims) {
      const nowMs = SYSTEM_CLOCK.date()
      const caller: CountedCaller = [{ word: 'client', value: client }]
      const usages = perClient.map(async (rule) => {
        const key = callerKey(prefix, rule, caller)
        const claimed = rule.claim && claimedBy(rule.claim, { ip: '', claims })
        const rules = { ...rulesOf(options, rule, key, client), claimed }
        const quota = quotaOf(rule, key, nowMs, rules)
        const usage = usageOf(await read(quota), rule, rules, nowMs)
        // Hides from a client that an operator blocked when that ends.
        return quota.source === 'override' && quota.limit === 0 ? { ...usage, changes: [] } : usage
      })
      return { limits: await Promise.all(usages) }
    },

    async ofCaller(caller, signal) {
      assertCounted(limits, caller)
      const nowMs = SYSTEM_CLOCK.date()
      const client = caller.find(({ word }) => word === 'client')?.value
      const own = clientLimits?.get(client ?? '') ?? []
      const name = formatCaller(caller)
      const set = [...(overrides?.values() ?? [])].filter(({ caller }) => formatCaller(caller) === name)
      const filter = callerKeys(limits, prefix, caller, false)
      const names = await store.keys(filter, MAX_KEYS + 1, signal)
      const found = [...new Set([...filter.named, ...names.toSorted()])]
      const counted = found.slice(0, MAX_KEYS).flatMap((key) => applyTo(key, nowMs))
      const inspected = await store.inspect(counted.map(({ quota }) => quota))
      const keys = counted.map(({ rule, rules, quota }, i) => {
        const { allowance, mode } = inspected[i]!
        return {
          key: showKey(prefix, rule, quota.key),
          ...usageOf(allowance, rule, rules, nowMs),
          until: instantOrNull(quota.untilAt),
          override: quota.source === 'override',
          shadow: quota.shadow,
          used: allowance.used,
          mode,
          whole: quota.limit,
        }
      })
      return {
        caller: showCaller(caller),
        limits: keys.filter(({ used }, i) => used > 0 || filter.named.includes(counted[i]!.quota.key)),
        own: [...own].map(([name, { limit, untilAt }]) => ({ name, limit, until: instantOrNull(untilAt) })),
        overrides: listOverrides(set, limits, nowMs),
        settable: limits.filter((limit) => isOverridable(limit, caller)).map(({ name }) => name),
        truncated: found.length > MAX_KEYS,
      }
    },

    async free(caller, signal) {
      assertCounted(limits, caller)
      return await store.reset(callerKeys(limits, prefix, caller), signal)
    },
    forget: () => cache.clear(),
  }
}
