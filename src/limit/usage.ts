import { LRUCache } from 'lru-cache'
import { clientKeys } from './key.ts'
import { type ClientLimits, compileLimits, type Limit, quotaOfKey } from './limit.ts'
import type { Allowance, Store } from './store.ts'

/** What a client may still use of a limit. Instants are ISO 8601 in UTC, with milliseconds. */
export interface LimitUsage {
  readonly name: string
  readonly limit: number
  readonly remaining: number
  readonly windowSeconds: number
  /** When `remaining` next grows, or the next call can pass. */
  readonly reset: string
  readonly changes: readonly { readonly announced: string; readonly from: string; readonly limit: number }[]
}

export interface KeyUsage extends LimitUsage {
  readonly key: string
  /** When the client's own limit ends; null if it has none, or if it does not end. */
  readonly until: string | null
  readonly shadow: boolean
}

export interface ClientUsage {
  readonly client: string
  readonly limits: readonly KeyUsage[]
  /** Its own limits of the configuration, in force or not; `until` is null for one that does not end. */
  readonly own: readonly { readonly name: string; readonly limit: number; readonly until: string | null }[]
  readonly truncated: boolean
}

export type Usage = ReturnType<typeof createUsage>

export const MAX_KEYS = 1000

/** Reads and deletes what is counted of a client. Operators' questions reject if the store itself cannot be asked. */
export function createUsage({
  store,
  counters = store,
  prefix,
  limits,
  clientLimits = new Map(),
}: {
  readonly store: Pick<Store, 'keys' | 'peek' | 'reset'>
  /** The store without its fallback, from which operators read. */
  readonly counters?: Pick<Store, 'peek'>
  readonly prefix: string
  readonly limits: readonly Limit[]
  readonly clientLimits?: ClientLimits
}) {
  const perClient = limits.filter(({ per }) => per.length === 1 && per[0] === 'client')
  const live = perClient.filter(({ shadow }) => !shadow)
  const quotasOfClient = compileLimits(perClient, prefix, clientLimits)
  const quotasOfCaller = compileLimits(live, prefix, clientLimits)
  type CallerUsage = { readonly limits: readonly LimitUsage[] }
  // A second, so that `ofCaller` costs Redis little.
  const cache = new LRUCache<string, Promise<CallerUsage>>({ max: 10_000, ttl: 1000 })

  function usageOf(allowance: Allowance, client: string, nowMs: number): LimitUsage {
    const { name, limit, remaining, windowMs, resetAt } = allowance
    const own = clientLimits.get(client)?.get(name)
    const ownEndsAt = own === undefined ? 0 : (own.untilAt ?? Infinity)
    const changes = (limits.find((one) => one.name === name)?.changes ?? [])
      // The client's own limit beats a change until it ends.
      .filter(({ announcedAt, fromAt }) => announcedAt <= nowMs && nowMs < fromAt && ownEndsAt <= fromAt)
      .map(({ announcedAt, fromAt, limit }) => ({
        announced: instant(announcedAt),
        from: instant(fromAt),
        limit,
      }))
    return { name, limit, remaining, windowSeconds: windowMs / 1000, reset: instant(resetAt), changes }
  }

  async function readOfCaller(client: string): Promise<CallerUsage> {
    const nowMs = Date.now()
    const allowances = await store.peek(quotasOfCaller({ client, ip: '' }, {}, nowMs))
    return { limits: allowances.map((allowance) => usageOf(allowance, client, nowMs)) }
  }

  return {
    /** Returns the live limits counted per client alone, up to a second old. It costs no call. */
    ofCaller(client: string): Promise<CallerUsage> {
      const cached = cache.get(client)
      if (cached !== undefined) return cached
      const answer = readOfCaller(client)
      cache.set(client, answer)
      answer.catch(() => cache.delete(client))
      return answer
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
        const quota = quotaOfKey(limits, prefix, key, client, nowMs, clientLimits)
        if (quota !== undefined) quotas.push(quota)
      }
      const allowances = await counters.peek(quotas)
      const keys = quotas.map(({ key, untilAt, shadow }, i) => {
        const until = untilAt === undefined ? null : instant(untilAt)
        return { key, ...usageOf(allowances[i]!, client, nowMs), until, shadow }
      })
      const isUsed = ({ key, remaining, limit }: KeyUsage): boolean =>
        known.has(key) || remaining < limit || limit === 0
      const own = [...(clientLimits.get(client) ?? [])].map(([name, { limit, untilAt }]) => ({
        ...{ name, limit, until: untilAt === undefined ? null : instant(untilAt) },
      }))
      return { client, limits: keys.filter(isUsed), own, truncated: further.length > max }
    },

    /** Deletes every key of the client, and returns how many there were. It may scan the store. */
    free: (client: string, signal?: AbortSignal): Promise<number> =>
      store.reset(clientKeys(limits, prefix, client), signal),
    /** Drops the cached answers of `ofCaller`: after a reset. */
    forget: () => cache.clear(),
  }
}

const instant = (ms: number): string => new Date(ms).toISOString()
