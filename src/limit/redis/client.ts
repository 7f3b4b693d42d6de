import { once } from 'node:events'
import { type Cluster, Redis } from 'ioredis'
import { hashSlot, hashTag, SLOTS, tagOf } from './hash-slot.ts'
import { NEEDLESS } from './auth.ts'
import { nameOf, openCluster, type RedisCluster } from './cluster.ts'
import {
  redisAddress,
  type RedisCredentials,
  type RedisTopology,
  sentinelOptions,
  serverOptions,
} from './options.ts'
import { hearingSentinels } from './sentinels.ts'
import {
  IS_SENTINEL,
  missingDatabase,
  NEEDLESS_PASSWORD,
  StoreConfigError,
  unservedWarning,
} from './topology.ts'

/** What a store needs to know of its Redis, be it one server or a cluster. */
export interface RedisClient {
  readonly isCluster: boolean
  /** Takes the commands. */
  readonly commands: Redis | Cluster
  connect(): Promise<void>
  /** Resolves when all masters are connected; rejects when each is, or has failed. */
  mastersReady(): Promise<void>
  /** Is it known which masters there are? */
  knowsMasters(): boolean
  masters(): readonly Redis[]
  /** The connection to the server that keeps a key; throws where there is none. */
  keeper(key: string): Redis
  /** Names the server that keeps a key: `redis`, or `host:port` in a cluster, or that its slot has none, or `unknown` before it told its slots. */
  server(key: string): string
  /** Hash tags: one for each server, and one for the slots without a master. */
  tags(): readonly string[]
  /** Why a server is not connected, as far as it is known of it alone; undefined where it is. */
  why(server: string): Error | undefined
  /** Drops the connection to the server that keeps a key, where it is open, and makes a new one. */
  reconnect(key: string): void
  /** Closes it for good. */
  close(): void
}

export interface RedisEvents {
  readonly onError: (error: Error) => void
  /** Told of each connection that is made, and that is lost. */
  readonly onChange: (up: boolean) => void
  /** Told when it gives up connecting. */
  readonly onEnd: () => void
  /** Told of what the operator should know of a Redis that can be used. */
  readonly onWarning: (warning: string) => void
}

/** A client that connects when it is told to; throws a StoreConfigError of what cannot be. */
export function openClient(
  topology: RedisTopology,
  credentials: RedisCredentials,
  events: RedisEvents,
): RedisClient {
  const { onError, onChange, onEnd } = events
  const client =
    'cluster' in topology
      ? ofCluster(clusterAt(topology.cluster, credentials, events))
      : ofOne(serverAt(topology, credentials, onError))
  const emitter = client.commands as Redis
  emitter.on('error', onError).on('sentinelError', onError)
  emitter.on('ready', () => onChange(true))
  emitter.on('close', () => onChange(false))
  emitter.on('end', onEnd)
  let told = false
  const onNeedless = () => {
    if (!told) events.onWarning(NEEDLESS_PASSWORD)
    told = true
  }
  emitter.on(NEEDLESS, onNeedless).on('+node', (node: Redis) => node.on(NEEDLESS, onNeedless))
  return client
}

function serverAt(
  topology: Exclude<RedisTopology, { readonly cluster: unknown }>,
  credentials: RedisCredentials,
  onError: (error: Error) => void,
): Redis {
  if ('url' in topology) return new Redis(serverOptions(topology.url, credentials))
  return new Redis({ ...sentinelOptions(topology, credentials), Connector: hearingSentinels(onError) })
}

function clusterAt(
  urls: readonly string[],
  credentials: RedisCredentials,
  { onError, onWarning }: RedisEvents,
): RedisCluster {
  const nodes = urls.map((url) => redisAddress(url, credentials))
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

function ofOne(client: Redis): RedisClient {
  const drop = dropping()
  return {
    isCluster: false,
    commands: client,
    connect: () => client.connect(),
    mastersReady: async () => {},
    knowsMasters: () => true,
    masters: () => [client],
    keeper: () => client,
    server: () => 'redis',
    tags: () => [''],
    why: () => undefined,
    reconnect: () => drop(client, true),
    close: () => closeAll(client, [client]),
  }
}

/** What keys are kept by whose slot has no master. */
const MASTERLESS = 'slots without a master'

function ofCluster({ client, why }: RedisCluster): RedisClient {
  const drop = dropping()
  const masters = () => client.nodes('master')
  const masterOf = (key: string) => client.slots[hashSlot(hashTag(key))]?.[0]
  const nodeOf = (master: string | undefined) => masters().find((one) => nameOf(one) === master)
  return {
    isCluster: true,
    commands: client,
    connect: () => client.connect(),
    async mastersReady() {
      const others = masters().filter(({ status }) => status !== 'ready')
      const ends = await Promise.allSettled(others.map((node) => once(node, 'ready')))
      const failed = ends.find(({ status }) => status === 'rejected')
      if (failed) throw (failed as PromiseRejectedResult).reason
    },
    knowsMasters: () => client.status === 'ready',
    masters,
    keeper(key) {
      const master = masterOf(key)
      const node = nodeOf(master)
      if (node !== undefined) return node
      const what = master ?? `slot ${hashSlot(hashTag(key))} of the cluster has no master`
      throw new Error(`Redis is not connected: ${what}.`)
    },
    server: (key) => masterOf(key) ?? (client.slots.length === 0 ? 'unknown' : MASTERLESS),
    tags() {
      const slotOf = new Map<string | undefined, number>()
      for (let slot = 0; slot < SLOTS; slot++) {
        const master = client.slots[slot]?.[0]
        if (!slotOf.has(master)) slotOf.set(master, slot)
      }
      return [...slotOf.values()].map(tagOf)
    },
    why,
    reconnect(key) {
      const node = nodeOf(masterOf(key))
      // It is connected to again when the slots are refreshed.
      if (node) drop(node, false)
      client.refreshSlotsCache()
    },
    close() {
      const { subscriber } = client as unknown as { readonly subscriber: { getInstance(): Redis | null } }
      closeAll(client, [...client.nodes(), subscriber.getInstance() ?? {}])
    },
  }
}

/** The text of INFO; rejects with a StoreConfigError where it is a Sentinel's to refuse, or the configured database is missing. */
export async function saysOfItself(node: Redis): Promise<string> {
  const said = await node.info().catch(async (error: Error) => {
    throw (await isSentinel(node, error)) ? new StoreConfigError(IS_SENTINEL, error) : error
  })
  const { db = 0 } = node.options
  if (db !== 0 && !/_mode:(?:sentinel|cluster)/.test(said)) {
    // Where the server refused it, ioredis goes on in database 0, which may be another's.
    await node.select(db).catch((error: Error) => {
      throw missingDatabase(db, error) ?? error
    })
  }
  return said
}

/** Is it a Sentinel that refused a user? That is said by HELLO, which needs no right. */
async function isSentinel(node: Redis, { message }: Error): Promise<boolean> {
  if (!message.startsWith('NOPERM')) return false
  const said = await node.call('HELLO', '2').catch(() => [])
  return Array.isArray(said) && said.includes('sentinel')
}

/** Closes open connections, each once. */
function dropping(): (client: Redis, again: boolean) => void {
  const dropped = new WeakSet<Redis>()
  return (client, again) => {
    if (dropped.has(client) || (client.status !== 'ready' && client.status !== 'connect')) return
    dropped.add(client)
    client.once('close', () => dropped.delete(client))
    client.disconnect(again)
  }
}

/** Of a TLS socket that is closed during its handshake Node.js may tell two errors, of which ioredis hears one. */
function closeAll(
  client: Redis | Cluster,
  connections: readonly { readonly stream?: Redis['stream'] }[],
): void {
  for (const { stream } of connections) stream?.on('error', () => {})
  client.disconnect()
}
