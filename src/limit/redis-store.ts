import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { type Batches, createBatches } from './batches.ts'
import { hashSlot, hashTag, SLOTS, tagOf } from './hash-slot.ts'
import type { KeyFilter, Quota } from './limit.ts'
import { createRedisCheck, type RedisCheck } from './redis-check.ts'
import { createRedisClocks } from './redis-clocks.ts'
import { isVague, nameOf, openCluster, type RedisCluster } from './redis-cluster.ts'
import {
  redisAddress,
  type RedisCredentials,
  type RedisTopology,
  sentinelOptions,
  serverOptions,
} from './redis-options.ts'
import { hearingSentinels } from './redis-sentinels.ts'
import { configError, StoreConfigError, unservedWarning } from './redis-topology.ts'
import { wrongWire } from './redis-wire.ts'
import type { Allowance, Charge, RemoteStore } from './store.ts'

/** The text of charge.lua. */
export const CHARGE_SCRIPT = readFileSync(new URL('charge.lua', import.meta.url), 'utf8')

const SCANNED_AT_ONCE = 1000
const FREED_AT_ONCE = 500
const START_MS = 2000
const RESUMED_AFTER_MS = 100
/** How often it is found out, while Redis is out of reach, what is spoken where it should be. */
const WIRE_EVERY_MS = 2000

export interface RedisStoreOptions extends RedisCredentials {
  readonly topology: RedisTopology
  /** What every key starts with. */
  readonly prefix: string
  /** In place of charge.lua. */
  readonly script?: string
  /** After how long callers stop waiting for a decision: what Redis reads later is not charged any more. */
  readonly givenUpAfterMs?: number
  /** Most decisions, and names to be taken once, that may be unanswered; beyond, they fail at once. */
  readonly maxWaiting?: number
  /** Told when the connection is lost. */
  readonly onLost?: () => void
  /** Told once when Redis turns out, after `connect`, not to be what the configuration says. */
  readonly onWrong?: (error: StoreConfigError) => void
  /** Told of what the operator should know of a Redis that can be used. */
  readonly onWarning?: (warning: string) => void
}

/**
 * Counters shared by all instances, in one Redis, behind Sentinel or in a Cluster. Nothing is queued, repeated or waited
 * for here: what cannot be asked at once fails at once.
 */
export class RedisStore implements RemoteStore {
  readonly #client: Redis | Cluster
  readonly #why: RedisCluster['why']
  readonly #prefix: string
  readonly #script: string
  readonly #sha: string
  readonly #batches: Batches
  readonly #clocks = createRedisClocks()
  readonly #check: RedisCheck
  readonly #givenUpAfterMs: number
  readonly #onLost: () => void
  readonly #wrongWire: () => Promise<StoreConfigError | undefined>
  readonly #dropped = new WeakSet<Redis>()
  #lastError: Error | undefined
  #onError: (error: Error) => void = () => {}
  #wireSeenAt = Number.NEGATIVE_INFINITY
  #started = false
  #up = false
  #closed = false

  constructor(options: RedisStoreOptions) {
    const { topology, prefix, script = CHARGE_SCRIPT, maxWaiting = 10_000 } = options
    this.#prefix = prefix
    this.#script = script
    this.#sha = createHash('sha1').update(script).digest('hex')
    this.#givenUpAfterMs = options.givenUpAfterMs ?? 60_000
    this.#onLost = options.onLost ?? (() => {})
    this.#wrongWire = () => wrongWire(topology, options)
    this.#batches = createBatches((keys, args) => this.#ask(keys, args), maxWaiting)
    const onWarning = options.onWarning ?? (() => {})
    const { client, why } = connection(topology, options, (error) => this.#failed(error), onWarning)
    this.#client = client
    this.#why = why
    this.#check = createRedisCheck({
      topology,
      info: () => this.#info(),
      onWrong: (error) => {
        if (this.#started) options.onWrong?.(error)
      },
      onWarning,
    })
    this.#listen()
  }

  /**
   * Connects; false where Redis or a part of it is out of reach, which is tried again and again, and compared once it is
   * there. Rejects with a StoreConfigError where it is not what the configuration says or refuses the credentials.
   */
  async connect(): Promise<boolean> {
    const hopeless = new Promise<never>((_, reject) => {
      this.#onError = (error) => {
        const fatal = configError(error)
        if (fatal !== undefined) reject(fatal)
      }
    })
    try {
      await within(START_MS, Promise.race([hopeless, this.#start()]))
      return true
    } catch (error) {
      const fatal = configError(error) ?? (await this.#wrongWire())
      if (fatal === undefined) return false
      await this.close()
      throw fatal
    } finally {
      this.#started = true
      this.#onError = (error) => this.#check.hear(error)
    }
  }

  async #start(): Promise<void> {
    await this.#client.connect()
    if (this.#client instanceof Cluster) await mastersReady(this.#client)
    await Promise.all(this.samples().map((key) => this.probe(key)))
  }

  charge(quotas: readonly Quota[]): Promise<Charge> {
    return this.#batches.add(this.#place(quotas), quotas, true)
  }

  async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    const looks = quotas.map((quota) => this.#batches.add(this.#place([quota]), [quota], false))
    return (await Promise.all(looks)).flatMap(({ allowances }) => allowances)
  }

  async keys(filter: KeyFilter): Promise<readonly string[]> {
    const found = new Set<string>()
    for (const node of this.#masters()) {
      for (const glob of filter.globs) {
        let cursor = '0'
        do {
          const [next, keys] = await node.scan(cursor, 'MATCH', glob, 'COUNT', SCANNED_AT_ONCE)
          for (const key of keys) if (filter.matches(key)) found.add(key)
          cursor = next
        } while (cursor !== '0')
      }
    }
    return [...found]
  }

  async reset(filter: KeyFilter): Promise<number> {
    const keys = await this.keys(filter)
    let freed = 0
    for (let i = 0; i < keys.length; i += FREED_AT_ONCE) {
      const some = keys.slice(i, i + FREED_AT_ONCE)
      // A cluster frees keys of several slots one by one.
      const counts =
        this.#client instanceof Cluster
          ? some.map((key) => this.#client.unlink(key))
          : [this.#client.unlink(some)]
      for (const count of await Promise.all(counts)) freed += count
    }
    return freed
  }

  async once(key: string, ttlMs: number): Promise<boolean> {
    this.#check.assertRight()
    const name = `${this.#prefix}:{${key}}:~once`
    const asked = this.#batches.beside(() => this.#client.set(name, '1', 'PX', ttlMs, 'NX'))
    return (await this.#tell(asked, name)) === 'OK'
  }

  server(key: string): string {
    return this.#client instanceof Cluster ? (masterOf(this.#client, key) ?? 'unknown') : 'redis'
  }

  samples(): readonly string[] {
    const client = this.#client
    if (client instanceof Redis) return [`${this.#prefix}:{}:`]
    // Slots without a master are to be seen as failing too.
    const slotOf = new Map<string | undefined, number>()
    for (let slot = 0; slot < SLOTS; slot++) {
      const master = client.slots[slot]?.[0]
      if (!slotOf.has(master)) slotOf.set(master, slot)
    }
    return [...slotOf.values()].map((slot) => `${this.#prefix}:{${tagOf(slot)}}:`)
  }

  async probe(key: string): Promise<void> {
    await this.#check.look()
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
    const client = this.#client
    if (client instanceof Redis) {
      this.#drop(client, true)
      return
    }
    const master = masterOf(client, key)
    const node = client.nodes('master').find((one) => nameOf(one) === master)
    if (node) this.#drop(node, false)
    client.refreshSlotsCache()
  }

  /** Closes an open connection, once. A node of a cluster is connected to again when the slots are refreshed. */
  #drop(client: Redis, again: boolean): void {
    if (this.#dropped.has(client) || (client.status !== 'ready' && client.status !== 'connect')) return
    this.#dropped.add(client)
    client.once('close', () => this.#dropped.delete(client))
    client.disconnect(again)
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const { stream } of connectionsOf(this.#client)) stream?.on('error', () => {})
    this.#client.disconnect()
  }

  /** Asks the script; once more where it found the deadline past though the answer came in time, as after a clock was set. */
  async #ask(keys: readonly string[], args: readonly number[], again = false): Promise<unknown> {
    this.#check.assertRight()
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
    const client = this.#client
    const asked = client.evalsha(this.#sha, keys.length, ...keys, ...args).catch((error: Error) => {
      // Restarted, promoted or flushed: EVAL teaches the script again.
      if (!error.message.startsWith('NOSCRIPT')) throw error
      return client.eval(this.#script, keys.length, ...keys, ...args)
    })
    return this.#tell(asked, keys[0])
  }

  /** Adds to a failure what is known of its reason, and leaves a server that will not take writes. */
  #tell<T>(asked: Promise<T>, key = ''): Promise<T> {
    return asked.catch((error: Error) => {
      // Without a key, nobody knows which node of a cluster it was.
      const isKnown = key !== '' || this.#client instanceof Redis
      if (isKnown && /^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) this.reconnect(key)
      const why = key === '' ? undefined : this.#why(this.server(key))
      if (this.#up && why === undefined) throw error
      const reason = why ?? this.#lastError
      const words = reason === undefined ? '.' : `: ${reason.message}`
      throw new Error(`Redis is not connected${words}`, { cause: error })
    })
  }

  /** What decides quotas together: a cluster's slot, or the one server. */
  #place(quotas: readonly Quota[]): number {
    if (!(this.#client instanceof Cluster)) return 0
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

  /** What a master says of itself: of a cluster's, the first to answer, for one may hang; of none before it told its slots. */
  #info(): Promise<string> {
    const isUnknown = this.#client instanceof Cluster && this.#client.status !== 'ready'
    const masters = isUnknown ? [] : this.#masters()
    if (masters.length === 0 && (this.#lastError === undefined || isVague(this.#lastError))) {
      this.#lastError = new Error('the cluster gives no node its slots')
    }
    return this.#tell(
      Promise.any(masters.map((node) => node.info())).catch(({ errors }: AggregateError) => {
        throw errors[0] ?? this.#lastError
      }),
    )
  }

  #masters(): readonly Redis[] {
    return this.#client instanceof Cluster ? this.#client.nodes('master') : [this.#client]
  }

  #failed(error: Error & { readonly lastNodeError?: Error }): void {
    // That a connection is closed, or that all nodes fail, says less than why, which was said before.
    if (this.#lastError === undefined || !(isVague(error) || error.lastNodeError)) {
      this.#lastError = error.lastNodeError ?? error
    }
    this.#onError(error)
    if (this.#started && !this.#up) void this.#lookAtWire()
  }

  async #lookAtWire(): Promise<void> {
    const now = performance.now()
    if (this.#closed || now - this.#wireSeenAt < WIRE_EVERY_MS) return
    this.#wireSeenAt = now
    const wrong = await this.#wrongWire()
    if (wrong !== undefined && !this.#up && !this.#closed) this.#check.refuse(wrong)
  }

  #listen(): void {
    const failed = (error: Error) => this.#failed(error)
    const client: Redis = this.#client as Redis
    client.on('error', failed).on('sentinelError', failed)
    client.on('ready', () => this.#changed(true))
    client.on('close', () => this.#changed(false))
    // Where sentinels tell of a failover while they are asked for the master, ioredis gives up for good.
    client.on('end', () => void this.#resume())
  }

  async #resume(): Promise<void> {
    await sleep(RESUMED_AFTER_MS, undefined, { ref: false })
    if (!this.#closed) await this.#client.connect().catch(() => {})
  }

  #changed(up: boolean): void {
    if (up === this.#up || this.#closed) return
    this.#up = up
    if (!up) {
      this.#onLost()
      return
    }
    this.#lastError = undefined
    this.#check.forget()
    if (this.#started) this.#check.look().catch(() => {})
  }
}

/** Of a lone server, nothing is known but what its connection says. */
const alone = (client: Redis) => ({ client, why: () => undefined })

function connection(
  topology: RedisTopology,
  credentials: RedisCredentials,
  onError: (error: Error) => void,
  onWarning: (warning: string) => void,
): { readonly client: Redis | Cluster; readonly why: RedisCluster['why'] } {
  if ('url' in topology) return alone(new Redis(serverOptions(topology.url, credentials)))
  if ('sentinels' in topology) {
    const options = sentinelOptions(topology, credentials)
    return alone(new Redis({ ...options, Connector: hearingSentinels(onError) }))
  }
  const nodes = topology.cluster.map((url) => redisAddress(url, credentials))
  if (nodes.some(({ db }) => db !== undefined)) {
    throw new StoreConfigError('A Redis Cluster has database 0 alone; write the URLs without a path.')
  }
  return openCluster({
    nodes,
    onError,
    onUnserved(slots) {
      // Where all are, the cluster cannot be used, which is told as an outage.
      if (slots > 0 && slots < SLOTS) onWarning(unservedWarning(slots))
    },
  })
}

/**
 * Every connection of a client. Of a TLS socket that is closed during its handshake Node.js may tell two errors, of which
 * ioredis hears one.
 */
function connectionsOf(client: Redis | Cluster): readonly { readonly stream?: Redis['stream'] }[] {
  if (client instanceof Redis) return [client]
  const { subscriber } = client as unknown as { readonly subscriber: { getInstance(): Redis | null } }
  return [...client.nodes(), subscriber.getInstance() ?? {}]
}

/** `host:port` of the master that keeps a key, as far as it is known. */
function masterOf(cluster: Cluster, key: string): string | undefined {
  return cluster.slots[hashSlot(hashTag(key))]?.[0]
}

/** Resolves when all masters are connected; rejects when each is, or has failed. */
async function mastersReady(cluster: Cluster): Promise<void> {
  const nodes = cluster.nodes('master').filter(({ status }) => status !== 'ready')
  const ends = await Promise.allSettled(nodes.map((node) => once(node, 'ready')))
  const failed = ends.find(({ status }) => status === 'rejected')
  if (failed) throw (failed as PromiseRejectedResult).reason
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Redis did not answer within ${ms} ms.`)), ms)
  })
  return await Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
