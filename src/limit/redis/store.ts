import { randomUUID } from 'node:crypto'
import type { KeyFilter } from '../key.ts'
import type { Quota } from '../limit.ts'
import type { Allowance, Charge } from '../store.ts'
import { createConnection, type RedisConnectionOptions } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import { hashSlot, hashTag } from './hash-slot.ts'
import { createRedisOverrides } from './overrides.ts'
import { createScripts, type OnReply, type ScriptOptions } from './scripts.ts'

const SCAN_COUNT = 1000
const SCAN_TIMEOUT_MS = 10_000

export interface RedisStoreOptions extends RedisConnectionOptions, ScriptOptions {
  readonly prefix: string
  /** Called when Redis lost its data, with the time whose calls are lost, in epoch milliseconds of Redis's clock. */
  readonly onEmptied?: (countedUntil: number, emptySince: number) => void
}

/** What gateways.lua last answered; epoch milliseconds of Redis's clock. */
interface GatewayCount {
  readonly gateways: number
  readonly sinceAt: number
  readonly seenAt: number
}

export type RedisStore = ReturnType<typeof createRedisStore>

/**
 * Counters shared by all gateways, in one Redis, behind Sentinel or in a Cluster. Nothing is queued or retried: what cannot be
 * sent at once fails at once.
 */
export function createRedisStore(options: RedisStoreOptions) {
  const connection = createConnection(options)
  const { client } = connection
  const { commands } = client
  const id = randomUUID()
  const seen = new Map<string, GatewayCount>()
  const scanWithDeadline = createDeadlines(SCAN_TIMEOUT_MS)
  const scripts = createScripts(connection, options, (server, error) => store.onReply(server, error))

  /** Returns the slot of a key, 0 outside a cluster. The configuration ensures that all quotas of a decision share it. */
  const slot = ({ key }: Quota): number => (client.isCluster ? hashSlot(hashTag(key)) : 0)

  /** Yields the keys that a filter takes: those with a known name, then page by page those of a scan, some of them twice. */
  async function* find(
    { named, glob, matches }: KeyFilter,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly string[]> {
    connection.assertConfigured()
    const counts = named.map((key) =>
      scanWithDeadline(() => connection.explain(commands.exists(key), client.server(key))),
    )
    const exist = await Promise.all(counts)
    yield named.filter((_, i) => exist[i]! > 0)
    if (glob === undefined) return
    // A glob whose hash tag holds no wildcard matches keys of one slot.
    const isOfOneSlot = !/[*?[\\]/.test(hashTag(glob))
    for (const server of isOfOneSlot ? [client.server(glob)] : store.servers()) {
      const node = client.node(server)
      let cursor = '0'
      do {
        signal?.throwIfAborted()
        const page = () => connection.explain(node.scan(cursor, 'MATCH', glob, 'COUNT', SCAN_COUNT), server)
        const [next, keys] = await scanWithDeadline(page)
        yield keys.filter((key) => matches(key) && !named.includes(key))
        cursor = next
      } while (cursor !== '0')
    }
  }

  const store = {
    /** Set by the fallback. */
    onReply: (() => {}) as OnReply,

    /**
     * Connects. Resolves with false if Redis or a part of it is out of reach, which is retried in the background; rejects with
     * a StoreConfigError if Redis is not what the configuration says.
     */
    connect: (): Promise<boolean> => connection.connect(() => Promise.all(store.servers().map(store.probe))),

    charge: (quotas: readonly Quota[]): Promise<Charge> => scripts.decide(slot(quotas[0]!), quotas, true),

    async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
      const peeks = quotas.map((quota) => scripts.decide(slot(quota), [quota], false))
      return (await Promise.all(peeks)).flatMap(({ allowances }) => allowances)
    },

    async keys(filter: KeyFilter, max = Infinity, signal?: AbortSignal): Promise<readonly string[]> {
      const found = new Set<string>()
      for await (const keys of find(filter, signal)) {
        for (const key of keys) {
          if (found.size === max) return [...found]
          found.add(key)
        }
      }
      return [...found]
    },

    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      let freed = 0
      for await (const keys of find(filter, signal)) {
        // One by one, since they may be in several slots of a cluster.
        const counts = keys.map((key) => connection.explain(commands.unlink(key), client.server(key)))
        for (const count of await Promise.all(counts)) freed += count
      }
      return freed
    },

    overrides: createRedisOverrides(connection, options.prefix, options.timeoutMs),

    server: client.server,
    servers: (): readonly string[] => [...client.tags().keys()],
    reconnect: client.reconnect,

    /** Registers this gateway with a server; resolves if it takes calls, or keeps no keys any more. */
    async probe(server: string): Promise<void> {
      await scripts.check()
      const tag = client.tags().get(server)
      // It left the cluster, and other servers keep its keys.
      if (tag === undefined) return
      const sample = `${options.prefix}:{${tag}}:`
      const [nowUs, gateways, sinceUs] = await scripts.gateways(server, sample, id)
      const [seenAt, sinceAt] = [nowUs / 1000, sinceUs / 1000]
      const before = seen.get(sample)
      seen.set(sample, { gateways, sinceAt, seenAt })
      if (before !== undefined && before.sinceAt !== sinceAt) options.onEmptied?.(before.seenAt, sinceAt)
    },

    /** How many gateways share the store, as far as is known; at least 1. */
    gateways(): number {
      let most = 1
      for (const { gateways } of seen.values()) most = Math.max(most, gateways)
      return most
    },

    async close(): Promise<void> {
      // Written before the connection ends. If it is lost, this gateway is forgotten a little later.
      for (const sample of seen.keys()) commands.zrem(`${sample}~gateways`, id).catch(() => {})
      connection.close()
    },
  }
  return store
}
