import {
  type Change,
  clientKeys,
  type ClientLimits,
  compileLimits,
  type Limit,
  type Quota,
  quotaOfKey,
} from './limit.ts'
import type { Allowance, Store } from './store.ts'

/** What of a limit a client may still use. Instants are ISO 8601 in UTC, with milliseconds. */
export interface LimitUsage {
  readonly name: string
  /** What this client may do now: its own limit where it has one. */
  readonly limit: number
  readonly remaining: number
  readonly windowSeconds: number
  /** When `remaining` next grows; where the next call is refused, when it can pass. */
  readonly reset: string
  /** Changes that are announced, not yet in force, and will concern this client. */
  readonly changes: readonly { readonly announced: string; readonly from: string; readonly limit: number }[]
}

/** The same of one key, for operators. */
export interface KeyUsage extends LimitUsage {
  readonly key: string
  /** Until when the client's own limit holds; null where it has none, or for good. */
  readonly until: string | null
  readonly shadow: boolean
}

/** What a caller may read of its own limits. */
export interface CallerUsage {
  readonly limits: readonly LimitUsage[]
}

/** What operators may read of a client. */
export interface ClientUsage {
  readonly client: string
  readonly limits: readonly KeyUsage[]
  /** Are there more keys than are told? */
  readonly truncated: boolean
}

export interface UsageParts {
  readonly store: Pick<Store, 'keys' | 'peek' | 'reset'>
  /** The counters themselves, where another may stand in for them within `store`; operators are told of these alone. */
  readonly counters?: Pick<Store, 'peek'>
  readonly prefix: string
  readonly limits: readonly Limit[]
  readonly clientLimits?: ClientLimits
  /** Epoch milliseconds. */
  readonly now?: () => number
}

/** Reads and frees what is counted of a client. All of it rejects where the store cannot be asked, what operators ask also where another would stand in. */
export interface Usage {
  /** The live limits that are counted per client alone; costs no call. `sinceMs`: see `Store`. */
  ofCaller(client: string, sinceMs?: number): Promise<CallerUsage>
  /** The limits that are counted per client alone, and each key of the client in which calls are counted. It may scan the store. */
  ofClient(client: string): Promise<ClientUsage>
  /** Frees every key of the client; how many there were. It may scan the store. */
  free(client: string): Promise<number>
}

/** Most keys of a client that are told at a time. */
export const MOST_KEYS = 1000
const PEEKED_AT_ONCE = 100

export function createUsage(parts: UsageParts): Usage {
  const { store, counters = store, prefix, limits, clientLimits = new Map(), now = Date.now } = parts
  const alone = limits.filter(({ per }) => per.length === 1 && per[0] === 'client')
  const quotasOfClient = compileLimits(alone, prefix, clientLimits)
  const quotasOfCaller = compileLimits(
    alone.filter(({ shadow }) => !shadow),
    prefix,
    clientLimits,
  )

  function changesOf(name: string, client: string, nowMs: number): LimitUsage['changes'] {
    const own = clientLimits.get(client)?.get(name)
    // A change is nothing to a client whose own limit holds beyond it.
    const concerns = ({ fromAt }: Change) =>
      own === undefined || fromAt >= (own.untilAt ?? Infinity) || nowMs >= (own.untilAt ?? Infinity)
    return (limits.find((limit) => limit.name === name)?.changes ?? [])
      .filter((change) => change.announcedAt <= nowMs && nowMs < change.fromAt && concerns(change))
      .map(({ announcedAt, fromAt, limit }) => ({
        announced: instant(announcedAt),
        from: instant(fromAt),
        limit,
      }))
  }

  function usage(
    { name, limit, remaining, windowMs, resetAt }: Allowance,
    client: string,
    nowMs: number,
  ): LimitUsage {
    return {
      name,
      limit,
      remaining,
      windowSeconds: windowMs / 1000,
      reset: instant(resetAt),
      changes: changesOf(name, client, nowMs),
    }
  }

  async function peek(quotas: readonly Quota[], client: string, nowMs: number): Promise<KeyUsage[]> {
    const told: KeyUsage[] = []
    for (let i = 0; i < quotas.length; i += PEEKED_AT_ONCE) {
      const some = quotas.slice(i, i + PEEKED_AT_ONCE)
      for (const [j, allowance] of (await counters.peek(some)).entries()) {
        const { key, untilAt, shadow } = some[j]!
        const until = untilAt === undefined ? null : instant(untilAt)
        told.push({ key, ...usage(allowance, client, nowMs), until, shadow })
      }
    }
    return told
  }

  return {
    async ofCaller(client, sinceMs) {
      const nowMs = now()
      const allowances = await store.peek(quotasOfCaller({ client, ip: '' }, {}, nowMs), sinceMs)
      return { limits: allowances.map((allowance) => usage(allowance, client, nowMs)) }
    },

    async ofClient(client) {
      const nowMs = now()
      const first = quotasOfClient({ client, ip: '' }, {}, nowMs)
      const known = new Set(first.map(({ key }) => key))
      const keys = (await store.keys(clientKeys(limits, prefix, client))).filter((key) => !known.has(key))
      const room = Math.max(0, MOST_KEYS - first.length)
      const further = keys
        .toSorted()
        .slice(0, room)
        .flatMap((key) => quotaOfKey(limits, prefix, key, client, nowMs, clientLimits) ?? [])
      const counting = (await peek(further, client, nowMs)).filter(
        ({ remaining, limit }) => remaining < limit || limit === 0,
      )
      return {
        client,
        limits: [...(await peek(first, client, nowMs)), ...counting],
        truncated: keys.length > room,
      }
    },

    free: (client) => store.reset(clientKeys(limits, prefix, client)),
  }
}

function instant(ms: number): string {
  return new Date(ms).toISOString()
}
