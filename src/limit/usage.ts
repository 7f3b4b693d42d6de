import { LRUCache } from 'lru-cache'
import { type UpcomingChange, comingOf, decidedBy, type Rules } from './in-force.ts'
import { instant } from './instant.ts'
import { clientKeys } from './key.ts'
import { type ClientLimits, compileLimits, type Limit, type Quota, quotaOfKey } from './limit.ts'
import { type ListedOverride, listOverrides, type Overrides } from './overrides.ts'
import type { Allowance, Store } from './store.ts'

/** What a client may still use of a limit. Instants are ISO 8601 in UTC, with milliseconds. */
export interface LimitUsage {
  readonly name: string
  readonly limit: number
  readonly remaining: number
  readonly windowSeconds: number
  /** When `remaining` next grows, or the next call can pass. */
  readonly reset: string
  readonly changes: readonly UpcomingChange[]
}

export interface KeyUsage extends LimitUsage {
  readonly key: string
  /** When the client's own limit, or the override, ends; null if there is none, or if it does not end. */
  readonly until: string | null
  /** True if an override is in force. */
  readonly override: boolean
  readonly shadow: boolean
  /** Calls that are counted: more than `limit` where that was lowered. */
  readonly used: number
}

/** A client's own limit of the file; `until` is null for one that does not end. */
export interface OwnLimit {
  readonly name: string
  readonly limit: number
  readonly until: string | null
}

export interface ClientUsage {
  readonly client: string
  readonly limits: readonly KeyUsage[]
  /** Its own limits of the file, in force or not. */
  readonly own: readonly OwnLimit[]
  readonly overrides: readonly ListedOverride[]
  readonly truncated: boolean
}

export type Usage = ReturnType<typeof createUsage>

export const MAX_KEYS = 1000

/** More calls than any key counts. */
const NO_LIMIT = 2 ** 40

/** Returns how many calls each key counts, also beyond its limit. */
export async function readUsed(
  counters: Pick<Store, 'peek'>,
  quotas: readonly Quota[],
): Promise<readonly number[]> {
  const allowances = await counters.peek(quotas.map((quota) => ({ ...quota, limit: NO_LIMIT })))
  return allowances.map(({ remaining }) => NO_LIMIT - remaining)
}

/** Reads and deletes what is counted of a client. Operators' questions reject if the store itself cannot be asked. */
export function createUsage({
  store,
  counters = store,
  prefix,
  limits,
  clientLimits = new Map(),
  overrides = new Map(),
}: {
  readonly store: Pick<Store, 'keys' | 'peek' | 'reset'>
  /** The store without its fallback, from which operators read. */
  readonly counters?: Pick<Store, 'peek'>
  readonly prefix: string
  readonly limits: readonly Limit[]
  readonly clientLimits?: ClientLimits
  readonly overrides?: Overrides
}) {
  const perClient = limits.filter(({ per }) => per.length === 1 && per[0] === 'client')
  const live = perClient.filter(({ shadow }) => !shadow)
  const quotasOfClient = compileLimits(perClient, prefix, clientLimits, overrides)
  const quotasOfCaller = compileLimits(live, prefix, clientLimits, overrides)
  /** By key, for a second: what costs no call is to cost Redis little. */
  const cache = new LRUCache<string, Promise<Allowance>>({ max: 10_000, ttl: 1000 })

  /** Returns the limit of an allowance, with what beats it for a client. */
  function rulesOf(name: string, client: string): Rules {
    const limit = limits.find((one) => one.name === name)!
    return { limit, own: clientLimits.get(client)?.get(name), set: overrides.get(client)?.get(name) }
  }

  function usageOf(allowance: Allowance, client: string, nowMs: number): LimitUsage {
    const { name, limit, remaining, windowMs, resetAt } = allowance
    const rules = rulesOf(name, client)
    const announced = rules.limit.changes.filter(({ announcedAt }) => announcedAt <= nowMs)
    const changes = comingOf({ ...rules, limit: { ...rules.limit, changes: announced } }, nowMs)
    return { name, limit, remaining, windowSeconds: windowMs / 1000, reset: instant(resetAt), changes }
  }

  function read(quota: Quota): Promise<Allowance> {
    const cached = cache.get(quota.key)
    if (cached !== undefined) return cached
    const allowance = store.peek([quota]).then(([read]) => read!)
    cache.set(quota.key, allowance)
    allowance.catch(() => cache.delete(quota.key))
    return allowance
  }

  return {
    /** Returns what a key has left, up to a second old. It costs no call. */
    read,
    /** Returns the live limits counted per client alone, up to a second old. It costs no call. */
    async ofCaller(client: string): Promise<{ readonly limits: readonly LimitUsage[] }> {
      const nowMs = Date.now()
      const allowances = await Promise.all(quotasOfCaller({ client, ip: '' }, {}, nowMs).map(read))
      return { limits: allowances.map((allowance) => usageOf(allowance, client, nowMs)) }
    },

    /** Returns the limits counted per client alone, and each key in which calls are counted. It may scan the store. */
    async ofClient(client: string, signal?: AbortSignal): Promise<ClientUsage> {
      const nowMs = Date.now()
      const alone = quotasOfClient({ client, ip: '' }, {}, nowMs)
      const known = new Set(alone.map(({ key }) => key))
      const max = Math.max(0, MAX_KEYS - alone.length)
      const found = await store.keys(clientKeys(limits, prefix, client), MAX_KEYS + 1, signal)
      const further = found.filter((key) => !known.has(key)).toSorted()
      const quotas = [...alone]
      for (const key of further.slice(0, max)) {
        const quota = quotaOfKey(limits, prefix, key, client, nowMs, clientLimits, overrides)
        if (quota !== undefined) quotas.push(quota)
      }
      const [allowances, used] = await Promise.all([counters.peek(quotas), readUsed(counters, quotas)])
      const keys = quotas.map(({ key, name, untilAt, shadow }, i) => {
        const until = untilAt === undefined ? null : instant(untilAt)
        const override = decidedBy(rulesOf(name, client), nowMs).decidedBy === 'override'
        return { key, ...usageOf(allowances[i]!, client, nowMs), until, override, shadow, used: used[i]! }
      })
      const isUsed = ({ key, used }: KeyUsage): boolean => known.has(key) || used > 0
      const own = [...(clientLimits.get(client) ?? [])].map(([name, { limit, untilAt }]) => ({
        ...{ name, limit, until: untilAt === undefined ? null : instant(untilAt) },
      }))
      const set = listOverrides([...(overrides.get(client)?.values() ?? [])], limits, nowMs)
      const truncated = further.length > max
      return { client, limits: keys.filter(isUsed), own, overrides: set, truncated }
    },

    /** Deletes every key of the client, and returns how many there were. It may scan the store. */
    free: (client: string, signal?: AbortSignal): Promise<number> =>
      store.reset(clientKeys(limits, prefix, client), signal),
    /** Drops the cached allowances: after a reset. */
    forget: () => cache.clear(),
  }
}
