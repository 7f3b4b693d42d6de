import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { type Batches, createBatches } from './batches.ts'
import { hashSlot, hashTag, tagOfGlob } from './hash-slot.ts'
import type { KeyFilter, Quota } from './limit.ts'
import type { RedisClient } from './redis-client.ts'
import { createRedisClocks } from './redis-clocks.ts'
import { RedisLink, type RedisLinkOptions } from './redis-link.ts'
import type { Allowance, Charge, RemoteStore } from './store.ts'

/** The text of charge.lua. */
export const CHARGE_SCRIPT = readFileSync(new URL('charge.lua', import.meta.url), 'utf8')

const SCANNED_AT_ONCE = 1000
const FREED_AT_ONCE = 500

export interface RedisStoreOptions extends RedisLinkOptions {
  /** What every key starts with. */
  readonly prefix: string
  /** In place of charge.lua. */
  readonly script?: string
  /** After how long callers stop waiting for a decision: what Redis reads later is not charged any more. */
  readonly givenUpAfterMs?: number
  /** Most decisions, and names to be taken once, that may be unanswered; beyond, they fail at once. */
  readonly maxWaiting?: number
}

/**
 * Counters shared by all instances, in one Redis, behind Sentinel or in a Cluster. Nothing is queued, repeated or waited
 * for here: what cannot be asked at once fails at once.
 */
export class RedisStore implements RemoteStore {
  readonly #link: RedisLink
  readonly #client: RedisClient
  readonly #prefix: string
  readonly #script: string
  readonly #sha: string
  readonly #batches: Batches
  readonly #clocks = createRedisClocks()
  readonly #givenUpAfterMs: number

  constructor(options: RedisStoreOptions) {
    const { prefix, script = CHARGE_SCRIPT, givenUpAfterMs = 60_000, maxWaiting = 10_000 } = options
    this.#prefix = prefix
    this.#script = script
    this.#sha = createHash('sha1').update(script).digest('hex')
    this.#givenUpAfterMs = givenUpAfterMs
    this.#batches = createBatches((keys, args) => this.#ask(keys, args), maxWaiting)
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

  async keys(filter: KeyFilter): Promise<readonly string[]> {
    this.#link.assertRight()
    const found = new Set<string>()
    for (const glob of filter.globs) {
      const tag = tagOfGlob(glob)
      const samples = tag === undefined ? this.samples() : [`${this.#prefix}:{${tag}}:`]
      for (const sample of samples) await this.#link.tell(this.#find(sample, glob, filter, found), sample)
    }
    return [...found]
  }

  /** Looks through the server that keeps a key. */
  async #find(sample: string, glob: string, filter: KeyFilter, found: Set<string>): Promise<void> {
    const node = this.#client.keeper(sample)
    let cursor = '0'
    do {
      const [next, keys] = await node.scan(cursor, 'MATCH', glob, 'COUNT', SCANNED_AT_ONCE)
      for (const key of keys) if (filter.matches(key)) found.add(key)
      cursor = next
    } while (cursor !== '0')
  }

  async reset(filter: KeyFilter): Promise<number> {
    const { commands, isCluster } = this.#client
    const keys = await this.keys(filter)
    let freed = 0
    for (let i = 0; i < keys.length; i += FREED_AT_ONCE) {
      const some = keys.slice(i, i + FREED_AT_ONCE)
      // A cluster frees keys of several slots one by one.
      const parts = isCluster ? some.map((key) => [key]) : [some]
      const counts = parts.map((part) => this.#link.tell(commands.unlink(part), part[0]))
      for (const count of await Promise.all(counts)) freed += count
    }
    return freed
  }

  async once(key: string, ttlMs: number): Promise<boolean> {
    this.#link.assertRight()
    const name = `${this.#prefix}:{${key}}:~once`
    const asked = this.#batches.beside(() => this.#client.commands.set(name, '1', 'PX', ttlMs, 'NX'))
    return (await this.#link.tell(asked, name)) === 'OK'
  }

  server(key: string): string {
    return this.#client.server(key)
  }

  samples(): readonly string[] {
    // Slots without a master are to be seen as failing too.
    return this.#client.tags().map((tag) => `${this.#prefix}:{${tag}}:`)
  }

  async probe(key: string): Promise<void> {
    await this.#link.look()
    const quota: Quota = {
      name: '',
      key: `${this.#prefix}:{${hashTag(key)}}:~probe`,
      limit: Number.MAX_SAFE_INTEGER,
      windowMs: 1000,
      shadow: false,
    }
    await this.charge([quota])
  }

  reconnect(key: string): void {
    this.#client.reconnect(key)
  }

  async close(): Promise<void> {
    this.#link.close()
  }

  /** Asks the script; once more where it found the deadline past though the answer came in time, as after a clock was set. */
  async #ask(keys: readonly string[], args: readonly number[], again = false): Promise<unknown> {
    this.#link.assertRight()
    const server = this.server(keys[0]!)
    const sentAt = performance.now()
    const reply = await this.#run(keys, [this.#clocks.after(server, sentAt, this.#givenUpAfterMs), ...args])
    if (!Array.isArray(reply) || typeof reply[0] !== 'number') return reply
    this.#clocks.learn(server, sentAt, reply[0])
    if (reply.length > 1) return reply
    if (again || performance.now() - sentAt >= this.#givenUpAfterMs) {
      throw new Error('Redis answered when the call had been given up.')
    }
    return this.#ask(keys, args, true)
  }

  #run(keys: readonly string[], args: readonly number[]): Promise<unknown> {
    const { commands } = this.#client
    const asked = commands.evalsha(this.#sha, keys.length, ...keys, ...args).catch((error: Error) => {
      // Restarted, promoted or flushed: EVAL teaches the script again.
      if (!error.message.startsWith('NOSCRIPT')) throw error
      return commands.eval(this.#script, keys.length, ...keys, ...args)
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
