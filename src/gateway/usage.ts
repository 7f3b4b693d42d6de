import { LRUCache } from 'lru-cache'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { counterNameOf, decodePart, isPerClient } from '../policy/key.ts'
import { assertCounted, callerKey, callerKeys, showKey } from '../policy/caller-keys.ts'
import { type CountedCaller, formatCaller, showCaller } from '../policy/counted.ts'
import { parseKey } from '../limit/key.ts'
import type { Limit } from '../policy/limit.ts'
import type { LimitOptions } from '../policy/apply.ts'
import type { Quota } from '../limit/quota.ts'
import { type ClientRules, quotaOf, rulesOf, upcomingChanges } from '../policy/rule.ts'
import { isOverridable, listOverrides } from '../policy/overrides.ts'
import { claimedBy } from '../policy/conditions.ts'
import type { Caller } from '../policy/facts.ts'
import type { Allowance, InspectedStore } from '../limit/store.ts'

const instantOrNull = (ms: number | undefined) => (ms === undefined ? null : instant(ms))

export const MAX_KEYS = 1000

export type Usage = ReturnType<typeof createUsage>
/** The counters of one caller as operators read them. */
export type CallerUsage = Awaited<ReturnType<Usage['ofCaller']>>

export interface UsageOptions extends LimitOptions {
  readonly store: Pick<InspectedStore, 'peek' | 'inspect' | 'keys' | 'reset'>
  readonly limits: readonly Limit[]
}

function usageOf(allowance: Allowance, rule: Limit, rules: ClientRules, nowMs: number) {
  const { name, limit, remaining, used, windowMs, resetAt, sinceAt } = allowance
  const announced = rule.changes.filter(({ announcedAt }) => announcedAt <= nowMs)
  const changes = upcomingChanges({ ...rule, changes: announced }, nowMs, rules)
  const window = { windowSeconds: windowMs / 1000, ...(rule.calendar && { calendar: rule.calendar }) }
  /** The calls at once, and when the oldest of them began; null if there is none. */
  const atOnce = { inProgress: used, oldest: instantOrNull(sinceAt) }
  const counted: Partial<typeof window & typeof atOnce> = rule.isConcurrent ? atOnce : window
  return { name, limit, remaining, ...counted, reset: instant(resetAt), changes }
}

/**
 * Creates the queries for the usage of limits, which reject if the store does not answer. Instants
 * are ISO 8601 in UTC.
 */
export function createUsage(options: UsageOptions) {
  const { store, prefix, limits, clientLimits, overrides } = options
  const perClient = limits.filter(isPerClient)
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

  /** Returns the allowance of a key, up to a second old, without charging. */
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
    /**
     * Drops the cached allowances of quotas that were just decided: a caller must not read more
     * than its last response said.
     */
    drop(quotas: readonly Quota[]): void {
      if (cache.size > 0) for (const { key } of quotas) cache.delete(key)
    },
    /** Returns the live limits that are counted only per client, up to a second old, without charging. */
    async ofClient(client: string, claims?: Caller['claims']) {
      const nowMs = SYSTEM_CLOCK.date()
      const caller: CountedCaller = [{ word: 'client', value: client }]
      const live = perClient.filter(({ shadow }) => !shadow)
      const usages = live.map(async (rule) => {
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

    /**
     * Returns the limits that count only by a caller, and each other key with calls. May scan the
     * store. Rejects with an UncountedCaller.
     */
    async ofCaller(caller: CountedCaller, signal?: AbortSignal) {
      assertCounted(limits, caller)
      const nowMs = SYSTEM_CLOCK.date()
      const client = caller.find(({ word }) => word === 'client')?.value
      const asked = formatCaller(caller)
      const set = [...(overrides?.values() ?? [])].filter(({ caller }) => formatCaller(caller) === asked)
      const filter = callerKeys(limits, prefix, caller, false)
      const single = filter.named
      const max = Math.max(0, MAX_KEYS - single.length)
      const names = await store.keys(filter, MAX_KEYS + 1, signal)
      const further = names.filter((key) => !single.includes(key)).toSorted()
      const counted = [...single, ...further.slice(0, max)].flatMap((key) => applyTo(key, nowMs))
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
          /** `store`, or what this gateway does while Redis is out of reach; `limit` is its part of `whole` then. */
          mode,
          whole: quota.limit,
        }
      })
      return {
        caller: showCaller(caller),
        limits: keys.filter(({ used }, i) => used > 0 || single.includes(counted[i]!.quota.key)),
        /** The client's own limits of the file, in force or not. */
        own: [...(clientLimits?.get(client ?? '') ?? [])].map(([name, { limit, untilAt }]) => ({
          ...{ name, limit, until: instantOrNull(untilAt) },
        })),
        /** Also those without effect. */
        overrides: listOverrides(set, limits, nowMs),
        /** The limits that can be set for the caller. */
        settable: limits.filter((limit) => isOverridable(limit, caller)).map(({ name }) => name),
        truncated: further.length > max,
      }
    },

    /** Deletes every key of a caller, and returns their number. May scan the store. Rejects with an UncountedCaller. */
    async free(caller: CountedCaller, signal?: AbortSignal): Promise<number> {
      assertCounted(limits, caller)
      return await store.reset(callerKeys(limits, prefix, caller), signal)
    },
    /** Drops the cached allowances: after a reset. */
    forget: () => cache.clear(),
  }
}
