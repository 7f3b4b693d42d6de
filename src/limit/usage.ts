import { LRUCache } from 'lru-cache'
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
  /** The live limits that are counted per client alone; costs no call, and is up to a second old. */
  ofCaller(client: string): Promise<CallerUsage>
  /** The limits that are counted per client alone, and each key of the client in which calls are counted. It may scan the store. */
  ofClient(client: string, signal?: AbortSignal): Promise<ClientUsage>
  /** Frees every key of the client; how many there were. It may scan the store. */
  free(client: string, signal?: AbortSignal): Promise<number>
  /** Drops the answers that `ofCaller` keeps for a second: after a reset. */
  forget(): void
}

/** Most keys of a client that are told at a time. */
export const MOST_KEYS = 1000
const PEEKED_AT_ONCE = 100
/** How long a caller is answered the same, so that asking costs Redis little; and how many callers that is remembered of. */
const ANSWERS_MS = 1000
const MOST_ANSWERS = 10_000

export function createUsage(parts: UsageParts): Usage {
  const { store, counters = store, prefix, limits, clientLimits = new Map(), now = Date.now } = parts
  const alone = limits.filter(({ per }) => per.length === 1 && per[0] === 'client')
  const answers = new LRUCache<string, Promise<CallerUsage>>({ max: MOST_ANSWERS, ttl: ANSWERS_MS })
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

  async function readOfCaller(client: string): Promise<CallerUsage> {
    const nowMs = now()
    const allowances = await store.peek(quotasOfCaller({ client, ip: '' }, {}, nowMs))
    return { limits: allowances.map((allowance) => usage(allowance, client, nowMs)) }
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
    ofCaller(client) {
      const known = answers.get(client)
      if (known !== undefined) return known
      const answer = readOfCaller(client)
      answers.set(client, answer)
      answer.catch(() => answers.delete(client))
      return answer
    },

    async ofClient(client, signal) {
      const nowMs = now()
      const first = quotasOfClient({ client, ip: '' }, {}, nowMs)
      const known = new Set(first.map(({ key }) => key))
      const room = Math.max(0, MOST_KEYS - first.length)
      const found = await store.keys(clientKeys(limits, prefix, client), MOST_KEYS + 1, signal)
      const keys = found.filter((key) => !known.has(key))
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

    free: (client, signal) => store.reset(clientKeys(limits, prefix, client), signal),
    forget: () => answers.clear(),
  }
}

function instant(ms: number): string {
  return new Date(ms).toISOString()
}
