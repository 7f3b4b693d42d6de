import { LRUCache } from 'lru-cache'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { clientKey, clientKeys, isPerClient } from '../policy/key.ts'
import { parseKey } from '../limit/key.ts'
import type { Limit } from '../policy/limit.ts'
import type { LimitOptions } from '../policy/apply.ts'
import type { Quota } from '../limit/quota.ts'
import { quotaOf, rulesOf, upcomingChanges } from '../policy/rule.ts'
import { listOverrides } from '../policy/overrides.ts'
import { claimedBy } from '../policy/conditions.ts'
import type { Caller } from '../policy/facts.ts'
import type { Allowance, Store } from '../limit/store.ts'

const instantOrNull = (ms: number | undefined): string | null => (ms === undefined ? null : instant(ms))

export const MAX_KEYS = 1000

export type Usage = ReturnType<typeof createUsage>
export type ClientUsage = Awaited<ReturnType<Usage['ofClient']>>

export interface UsageOptions extends LimitOptions {
  readonly store: Pick<Store, 'keys' | 'peek' | 'reset'>
  /** The store without its fallback, from which operators read. */
  readonly counters: Pick<Store, 'peek'>
  readonly limits: readonly Limit[]
}

/** Creates the queries for the usage of limits, which reject if the store does not answer. Instants are ISO 8601 in UTC. */
export function createUsage(options: UsageOptions) {
  const { store, counters, prefix, limits, clientLimits, overrides } = options
  const perClient = limits.filter(isPerClient)
  /** Allowances by key, for a second: Redis must not be loaded by queries, which are not limited. */
  const cache = new LRUCache<string, Promise<Allowance>>({ max: 10_000, ttl: 1000 })

  function usageOf({ name, limit, remaining, windowMs, resetAt }: Allowance, client: string, nowMs: number) {
    const rule = limits.find((limit) => limit.name === name)!
    const announced = rule.changes.filter(({ announcedAt }) => announcedAt <= nowMs)
    const rules = rulesOf(options, client, name)
    const changes = upcomingChanges({ ...rule, changes: announced }, nowMs, rules)
    const window = { windowSeconds: windowMs / 1000, ...(rule.calendar && { calendar: rule.calendar }) }
    return { name, limit, remaining, ...window, reset: instant(resetAt), changes }
  }

  /** Returns the allowance of a key, up to a second old, without charging. */
  function read(quota: Quota): Promise<Allowance> {
    const cached = cache.get(quota.key)
    if (cached !== undefined) return cached
    const allowance = store.peek([quota]).then(([allowance]) => allowance!)
    cache.set(quota.key, allowance)
    allowance.catch(() => cache.delete(quota.key))
    return allowance
  }

  return {
    read,
    /** Drops the cached allowances of quotas that were just decided: a caller must not read more than its last response said. */
    drop(quotas: readonly Quota[]): void {
      if (cache.size > 0) for (const { key } of quotas) cache.delete(key)
    },
    /** Returns the live limits that are counted only per client, up to a second old, without charging. */
    async ofCaller(client: string, claims?: Caller['claims']) {
      const nowMs = SYSTEM_CLOCK.date()
      const live = perClient.filter(({ shadow }) => !shadow)
      const quotas = live.map((limit) => {
        const { name, claim } = limit
        const claimed = claim && claimedBy(claim, { ip: '', claims })
        const rules = { ...rulesOf(options, client, name), claimed }
        return quotaOf(limit, clientKey(prefix, client, name), nowMs, rules)
      })
      const allowances = await Promise.all(quotas.map(read))
      const usages = allowances.map((allowance, i) => {
        const { source, limit } = quotas[i]!
        const usage = usageOf(allowance, client, nowMs)
        // Hides from a client that an operator blocked when that ends.
        return source === 'override' && limit === 0 ? { ...usage, changes: [] } : usage
      })
      return { limits: usages }
    },

    /** Returns the limits that are counted only per client, and each other key with calls. May scan the store. */
    async ofClient(client: string, signal?: AbortSignal) {
      const nowMs = SYSTEM_CLOCK.date()
      const single = perClient.map(({ name }) => clientKey(prefix, client, name))
      const max = Math.max(0, MAX_KEYS - single.length)
      const names = await store.keys(clientKeys(limits, prefix, client, false), MAX_KEYS + 1, signal)
      const further = names.filter((key) => !single.includes(key)).toSorted()
      const counted = [...single, ...further.slice(0, max)].map((key) => {
        const { name } = parseKey(prefix, key)!
        const limit = limits.find((limit) => limit.name === name)!
        const rules = rulesOf(options, client, name)
        return quotaOf(limit, key, nowMs, rules)
      })
      const allowances = await counters.peek(counted)
      const keys = counted.map(({ key, untilAt, shadow, source }, i) => {
        const usage = usageOf(allowances[i]!, client, nowMs)
        return {
          key,
          ...usage,
          until: instantOrNull(untilAt),
          override: source === 'override',
          shadow,
          used: allowances[i]!.used,
        }
      })
      return {
        client,
        limits: keys.filter(({ key, used }) => single.includes(key) || used > 0),
        /** The client's own limits of the file, in force or not. */
        own: [...(clientLimits?.get(client) ?? [])].map(([name, { limit, untilAt }]) => ({
          ...{ name, limit, until: instantOrNull(untilAt) },
        })),
        overrides: listOverrides([...(overrides?.get(client)?.values() ?? [])], limits, nowMs),
        truncated: further.length > max,
      }
    },

    /** Deletes every key of the client, and returns their number. May scan the store. */
    free: (client: string, signal?: AbortSignal) => store.reset(clientKeys(limits, prefix, client), signal),
    /** Drops the cached allowances: after a reset. */
    forget: () => cache.clear(),
  }
}
