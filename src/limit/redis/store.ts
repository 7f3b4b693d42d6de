import { createHash, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { type Batches, createBatches } from './batches.ts'
import { createDeadlines, type Deadlines } from './deadlines.ts'
import { hashSlot, hashTag, tagOfGlob } from './hash-slot.ts'
import type { KeyFilter, Quota } from '../limit.ts'
import type { RedisClient } from './client.ts'
import { createRedisClocks } from './clocks.ts'
import { RedisLink, type RedisLinkOptions } from './connection.ts'
import type { Allowance, Charge, OnQuestion, RemoteStore } from '../store.ts'

/** The text of charge.lua. */
export const CHARGE_SCRIPT = textOf('charge.lua')
/** Longer than the fallback's probes are apart, a few times. */
const GATEWAY_LIFE_MS = 10_000

interface Script {
  readonly text: string
  readonly sha: string
}

const GATEWAYS = scriptOf(textOf('gateways.lua'))

const SCANNED_AT_ONCE = 1000
/** Longest that Redis may take to look through some of its keys. */
const SCAN_MS = 10_000

export interface RedisStoreOptions extends RedisLinkOptions {
  /** What every key starts with. */
  readonly prefix: string
  /** Gets the time whose calls are lost, when Redis came back without its data. */
  readonly onEmptied?: (range: LostRange) => void
  /** In place of charge.lua. */
  readonly script?: string
  /** Longest that Redis may take for an answer: what it reads later is not charged any more. */
  readonly timeoutMs?: number
}

interface Seen {
  readonly gateways: number
  readonly sinceAt: number
  readonly seenAt: number
}

/** Calls that were counted until one instant are lost since another; epoch milliseconds of Redis's clock. */
export interface LostRange {
  readonly countedUntil: number
  readonly emptySince: number
}

/**
 * Counters shared by all instances, in one Redis, behind Sentinel or in a Cluster. Nothing is queued, repeated or waited
 * for here: what cannot be asked at once fails at once.
 */
export class RedisStore implements RemoteStore {
  readonly #link: RedisLink
  readonly #client: RedisClient
  readonly #prefix: string
  readonly #script: Script
  readonly #id = randomUUID()
  /** What each probed key was last answered. */
  readonly #seen = new Map<string, Seen>()
  readonly #onEmptied: (range: LostRange) => void
  readonly #batches: Batches
  readonly #clocks = createRedisClocks()
  readonly #deadlines: Deadlines
  readonly #scans = createDeadlines(SCAN_MS)
  onQuestion: OnQuestion = () => {}

  constructor(options: RedisStoreOptions) {
    const { prefix, script = CHARGE_SCRIPT, timeoutMs = 60_000 } = options
    this.#prefix = prefix
    this.#script = scriptOf(script)
    this.#onEmptied = options.onEmptied ?? (() => {})
    this.#deadlines = createDeadlines(timeoutMs)
    this.#batches = createBatches((keys, args, size) => this.#ask(keys, args, size))
    this.#link = new RedisLink(options)
    this.#client = this.#link.client
  }

  /**
   * Connects; false where Redis or a part of it is out of reach, which is tried again and again, and compared once it is
   * there. Rejects with a StoreConfigError where it is not what the configuration says or refuses the credentials.
   */
  connect(): Promise<boolean> {
    return this.#link.connect(() => Promise.all(this.samples().map((key) => this.probe(key))))
  }

  charge(quotas: readonly Quota[]): Promise<Charge> {
    return this.#batches.add(this.#place(quotas), quotas, true)
  }

  async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    const looks = quotas.map((quota) => this.#batches.add(this.#place([quota]), [quota], false))
    return (await Promise.all(looks)).flatMap(({ allowances }) => allowances)
  }

  async keys(
    filter: KeyFilter,
    most = Number.POSITIVE_INFINITY,
    signal?: AbortSignal,
  ): Promise<readonly string[]> {
    const found = new Set<string>()
    for await (const keys of this.#find(filter, signal)) {
      for (const key of keys) if (found.size < most) found.add(key)
      if (found.size === most) break
    }
    return [...found]
  }

  async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
    const { commands, isCluster } = this.#client
    let freed = 0
    for await (const keys of this.#find(filter, signal)) {
      // A cluster frees keys of several slots one by one.
      const parts = isCluster ? keys.map((key) => [key]) : keys.length > 0 ? [[...keys]] : []
      const counts = parts.map((part) => this.#link.tell(commands.unlink(part), part[0]))
      for (const count of await Promise.all(counts)) freed += count
    }
    return freed
  }

  /** The keys that a filter takes: those that can be named, and then page by page those that a scan finds, some of them twice. */
  async *#find({ named, glob, matches }: KeyFilter, signal?: AbortSignal): AsyncGenerator<readonly string[]> {
    this.#link.assertRight()
    const { commands } = this.#client
    const exist = named.map((key) =>
      this.#scans.bound(() => this.#link.tell(commands.exists(key), key)).then((count) => count > 0),
    )
    const there = await Promise.all(exist)
    yield named.filter((_, i) => there[i])
    if (glob === undefined) return
    const tag = tagOfGlob(glob)
    for (const sample of tag === undefined ? this.samples() : [`${this.#prefix}:{${tag}}:`]) {
      const node = this.#client.keeper(sample)
      let cursor = '0'
      do {
        signal?.throwIfAborted()
        const page = () => node.scan(cursor, 'MATCH', glob, 'COUNT', SCANNED_AT_ONCE)
        const [next, keys] = await this.#scans.bound(() => this.#link.tell(page(), sample))
        yield keys.filter((key) => matches(key) && !named.includes(key))
        cursor = next
      } while (cursor !== '0')
    }
  }

  server(key: string): string {
    return this.#client.server(key)
  }

  samples(): readonly string[] {
    // Slots without a master are to be seen as failing too.
    return this.#client.tags().map((tag) => `${this.#prefix}:{${tag}}:`)
  }

  async probe(key: string): Promise<void> {
    await this.#deadlines.bound(() => this.#link.look())
    const server = this.server(key)
    const sample = this.samples().find((one) => this.server(one) === server) ?? key
    const keys = [`${sample}~gateways`, `${sample}~since`]
    const sentAt = performance.now()
    const reply = await this.#deadlines.bound(() => this.#eval(GATEWAYS, keys, [this.#id, GATEWAY_LIFE_MS]))
    if (!isNumbers(reply) || reply.length !== 3) {
      throw new Error('Redis did not answer as gateways.lua does.')
    }
    const [nowUs, gateways, sinceUs] = reply as [number, number, number]
    this.#clocks.learn(server, sentAt, performance.now(), nowUs)
    const [seenAt, sinceAt] = [nowUs / 1000, sinceUs / 1000]
    const known = this.#seen.get(sample)
    this.#seen.set(sample, { gateways, sinceAt, seenAt })
    if (known !== undefined && known.sinceAt !== sinceAt) {
      this.#onEmptied({ countedUntil: known.seenAt, emptySince: sinceAt })
    }
  }

  gateways(): number {
    const counts = this.samples().map((key) => this.#seen.get(key)?.gateways ?? 1)
    return Math.max(1, ...counts)
  }

  reconnect(key: string): void {
    this.#client.reconnect(key)
  }

  async close(): Promise<void> {
    // Written before the connection ends; whoever does not get that forgets this gateway a little later.
    for (const key of this.#seen.keys()) {
      this.#client.commands.zrem(`${key}~gateways`, this.#id).catch(() => {})
    }
    this.#link.close()
  }

  /** Asks the script, and says how that went. */
  async #ask(keys: readonly string[], args: readonly number[], size: number): Promise<readonly number[]> {
    const [key] = keys as [string]
    const server = this.server(key)
    try {
      this.#link.assertRight()
      const reply = await this.#deadlines.bound((left) => this.#run(server, keys, args, left))
      if (reply.length !== size) throw new Error('Redis did not answer as charge.lua does.')
      this.onQuestion(server, key, undefined)
      return reply
    } catch (error) {
      this.onQuestion(server, key, error as Error)
      throw error
    }
  }

  /**
   * Runs the script, with a deadline that is surely no later than the caller's, so that what is given up is not charged; and
   * once more where that is past already, because the server's clock is hardly known.
   */
  async #run(
    server: string,
    keys: readonly string[],
    args: readonly number[],
    left: () => number,
  ): Promise<readonly number[]> {
    for (const bound of ['no later', 'no earlier'] as const) {
      const sentAt = performance.now()
      const deadline = this.#clocks.after(server, sentAt, left(), bound)
      const reply = await this.#eval(this.#script, keys, [deadline, ...args])
      if (!isNumbers(reply)) break
      this.#clocks.learn(server, sentAt, performance.now(), reply[0]!)
      if (reply.length > 1) return reply
    }
    return []
  }

  #eval(
    { text, sha }: Script,
    keys: readonly string[],
    args: readonly (number | string)[],
  ): Promise<unknown> {
    const { commands } = this.#client
    const asked = commands.evalsha(sha, keys.length, ...keys, ...args).catch((error: Error) => {
      // Restarted, promoted or flushed: EVAL teaches the script again.
      if (!error.message.startsWith('NOSCRIPT')) throw error
      return commands.eval(text, keys.length, ...keys, ...args)
    })
    return this.#link.tell(asked, keys[0])
  }

  /** What decides quotas together: a cluster's slot, or the one server. */
  #place(quotas: readonly Quota[]): number {
    if (!this.#client.isCluster) return 0
    const tag = hashTag(quotas[0]!.key)
    const slot = hashSlot(tag)
    for (const { key } of quotas) {
      const other = hashTag(key)
      if (other !== tag && hashSlot(other) !== slot) {
        throw new TypeError(
          `On a Redis Cluster, limits that are decided together must be counted per the same first part: ${quotas.map(({ name }) => name).join(', ')}.`,
        )
      }
    }
    return slot
  }
}

function isNumbers(reply: unknown): reply is readonly number[] {
  return Array.isArray(reply) && reply.length > 0 && reply.every(Number.isSafeInteger)
}

function textOf(file: string): string {
  return readFileSync(new URL(file, import.meta.url), 'utf8')
}

function scriptOf(text: string): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}
