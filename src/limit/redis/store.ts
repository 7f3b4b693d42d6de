import { randomUUID } from 'node:crypto'
import type { KeyFilter } from '../key.ts'
import type { Quota } from '../limit.ts'
import type { Allowance, Charge, Store } from '../store.ts'
import { createBatches } from './batches.ts'
import { RedisConnection, type RedisConnectionOptions } from './connection.ts'
import { Deadlines } from './deadlines.ts'
import { hashSlot, hashTag } from './hash-slot.ts'
import { createScripts, type OnReply, type ScriptOptions, type Scripts } from './scripts.ts'

const SCAN_COUNT = 1000
const SCAN_TIMEOUT_MS = 10_000

export interface RedisStoreOptions extends RedisConnectionOptions, ScriptOptions {
  readonly prefix: string
  /**
   * Called when Redis came back without its data, with the time whose calls are lost, in epoch milliseconds of Redis's clock.
   */
  readonly onEmptied?: (countedUntil: number, emptySince: number) => void
}

/** What gateways.lua last answered; epoch milliseconds of Redis's clock. */
interface Seen {
  readonly gateways: number
  readonly sinceAt: number
  readonly seenAt: number
}

/**
 * Counters shared by all gateways, in one Redis, behind Sentinel or in a Cluster. Nothing is queued or retried: what cannot be
 * sent at once fails at once.
 */
export class RedisStore implements Store {
  readonly #connection: RedisConnection
  readonly #options: RedisStoreOptions
  readonly #id = randomUUID()
  readonly #seen = new Map<string, Seen>()
  readonly #scripts: Scripts
  readonly #decide: ReturnType<typeof createBatches>
  readonly #scans = new Deadlines(SCAN_TIMEOUT_MS)
  /** Set by the fallback. */
  onReply: OnReply = () => {}

  constructor(options: RedisStoreOptions) {
    this.#options = options
    this.#connection = new RedisConnection(options)
    this.#scripts = createScripts(this.#connection, options, (server, error) => this.onReply(server, error))
    this.#decide = createBatches(this.#scripts)
  }

  /**
   * Connects. Resolves with false if Redis or a part of it is out of reach, which is retried in the background; rejects with
   * a StoreConfigError if Redis is not what the configuration says.
   */
  connect(): Promise<boolean> {
    return this.#connection.connect(() => Promise.all(this.servers().map((server) => this.probe(server))))
  }

  charge(quotas: readonly Quota[]): Promise<Charge> {
    return this.#decide(this.#slot(quotas[0]!), quotas, true)
  }

  async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    const peeks = quotas.map((quota) => this.#decide(this.#slot(quota), [quota], false))
    return (await Promise.all(peeks)).flatMap(({ allowances }) => allowances)
  }

  async keys(filter: KeyFilter, max = Infinity, signal?: AbortSignal): Promise<readonly string[]> {
    const found = new Set<string>()
    for await (const keys of this.#find(filter, signal)) {
      for (const key of keys) {
        if (found.size === max) return [...found]
        found.add(key)
      }
    }
    return [...found]
  }

  async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
    const { commands } = this.#connection.client
    let freed = 0
    for await (const keys of this.#find(filter, signal)) {
      // One by one, since they may be in several slots of a cluster.
      const counts = keys.map((key) => this.#connection.explain(commands.unlink(key), this.server(key)))
      for (const count of await Promise.all(counts)) freed += count
    }
    return freed
  }

  /** Yields the keys that a filter takes: those with a known name, then page by page those of a scan, some of them twice. */
  async *#find({ named, glob, matches }: KeyFilter, signal?: AbortSignal): AsyncGenerator<readonly string[]> {
    this.#connection.assertRight()
    const { client } = this.#connection
    const counts = named.map((key) =>
      this.#scans.bound(() => this.#connection.explain(client.commands.exists(key), client.server(key))),
    )
    const exist = await Promise.all(counts)
    yield named.filter((_, i) => exist[i]! > 0)
    if (glob === undefined) return
    // A glob whose hash tag holds no wildcard matches keys of one slot.
    const isOfOneSlot = !/[*?[\\]/.test(hashTag(glob))
    for (const server of isOfOneSlot ? [client.server(glob)] : this.servers()) {
      const node = client.node(server)
      let cursor = '0'
      do {
        signal?.throwIfAborted()
        const page = () =>
          this.#connection.explain(node.scan(cursor, 'MATCH', glob, 'COUNT', SCAN_COUNT), server)
        const [next, keys] = await this.#scans.bound(page)
        yield keys.filter((key) => matches(key) && !named.includes(key))
        cursor = next
      } while (cursor !== '0')
    }
  }

  server(key: string): string {
    return this.#connection.client.server(key)
  }

  servers(): readonly string[] {
    return [...this.#connection.client.tags().keys()]
  }

  /** Registers this gateway with a server; resolves if it takes calls, or keeps no keys any more. */
  async probe(server: string): Promise<void> {
    await this.#scripts.check()
    const tag = this.#connection.client.tags().get(server)
    // It left the cluster, and other servers keep its keys.
    if (tag === undefined) return
    const sample = `${this.#options.prefix}:{${tag}}:`
    const [nowUs, gateways, sinceUs] = await this.#scripts.gateways(server, sample, this.#id)
    const [seenAt, sinceAt] = [nowUs / 1000, sinceUs / 1000]
    const before = this.#seen.get(sample)
    this.#seen.set(sample, { gateways, sinceAt, seenAt })
    if (before !== undefined && before.sinceAt !== sinceAt) this.#options.onEmptied?.(before.seenAt, sinceAt)
  }

  /** How many gateways share the store, as far as is known; at least 1. */
  gateways(): number {
    let most = 1
    for (const { gateways } of this.#seen.values()) most = Math.max(most, gateways)
    return most
  }

  reconnect(server: string): void {
    this.#connection.client.reconnect(server)
  }

  async close(): Promise<void> {
    // Written before the connection ends. If it is lost, this gateway is forgotten a little later.
    for (const sample of this.#seen.keys()) {
      this.#connection.client.commands.zrem(`${sample}~gateways`, this.#id).catch(() => {})
    }
    this.#connection.close()
  }

  /** Returns the slot of a key, 0 outside a cluster. The configuration ensures that all quotas of a decision share it. */
  #slot({ key }: Quota): number {
    return this.#connection.client.isCluster ? hashSlot(hashTag(key)) : 0
  }
}
