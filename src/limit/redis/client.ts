import { once } from 'node:events'
import { Cluster, Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import { isGeneric } from './diagnose.ts'
import { hashSlot, hashTag, SLOTS, tagOf } from './hash-slot.ts'
import {
  clusterOptions,
  redisAddress,
  type RedisCredentials,
  type RedisTopology,
  sentinelOptions,
  serverOptions,
} from './options.ts'

/** A client of one server or of a cluster. A `server` is `redis`, or `host:port` in a cluster. */
type RedisClient = ReturnType<typeof openCluster>

/** Opens a client; `onChange` is called with each connection that is made or lost. */
export function openClient(
  topology: RedisTopology,
  credentials: RedisCredentials,
  onError: (error: Error) => void,
  onChange: (up: boolean) => void,
): RedisClient {
  const client =
    'cluster' in topology
      ? openCluster(topology.cluster, credentials, onError)
      : 'url' in topology
        ? openOne(new Redis(serverOptions(topology.url, credentials)), [])
        : openBehindSentinels(topology, credentials)
  const emitter = client.commands as Redis
  emitter.on('error', onError).on('sentinelError', onError)
  emitter.on('ready', () => onChange(true)).on('close', () => onChange(false))
  return client
}

/** The sentinels announce a new master before the old one ends its connections. */
function openBehindSentinels(
  topology: Extract<RedisTopology, { readonly name: string }>,
  credentials: RedisCredentials,
): RedisClient {
  const { master, subscriptions } = sentinelOptions(topology, credentials)
  const client = new Redis(master)
  const watchers = subscriptions.map((options) => new Redis(options))
  for (const watcher of watchers) {
    client.once('ready', () => void watcher.connect().catch(() => {}))
    watcher.on('error', () => {})
    watcher.on('ready', () => void watcher.subscribe('+switch-master').catch(() => {}))
    watcher.on('message', (_, message: string) => {
      if (message.startsWith(`${topology.name} `)) disconnect(client, true)
    })
  }
  return openOne(client, watchers)
}

function openOne(client: Redis, watchers: readonly Redis[]): RedisClient {
  return {
    isCluster: false,
    commands: client,
    connect: () => client.connect(),
    masters: () => [client],
    server: () => 'redis',
    tags: () => new Map([['redis', '']]),
    node: () => client,
    reason: () => undefined,
    reconnect: () => disconnect(client, true),
    close() {
      for (const watcher of watchers) close(watcher, [watcher])
      close(client, [client])
    },
  }
}

/** The `server` of keys whose slot no master serves. */
const MASTERLESS = 'slots without a master'

function openCluster(
  urls: readonly string[],
  credentials: RedisCredentials,
  onError: (error: Error) => void,
) {
  const nodes = urls.map((url) => redisAddress(url, credentials))
  const client = new Cluster(nodes, clusterOptions(nodes))
  /** `host:port` of a node → why it is not connected; also of nodes that left. */
  const reasons = new LRUCache<string, Error>({ max: 1000 })

  const masters = (): readonly Redis[] => (client.status === 'ready' ? client.nodes('master') : [])
  const server = (slot: number): string =>
    client.slots[slot]?.[0] ?? (client.slots.length === 0 ? 'unknown' : MASTERLESS)
  const nodeOf = (name: string): Redis | undefined =>
    client.nodes('master').find((node) => nameOf(node) === name)

  client.on('node error', (error: Error, name: string) => {
    const reason = new Error(`${name}: ${error.message}`, { cause: error })
    if (!reasons.has(name) || !isGeneric(error)) reasons.set(name, reason)
    onError(reason)
  })
  client.on('+node', (node: Redis) => {
    node.on('ready', () => reasons.delete(nameOf(node)))
    connectMasters()
  })
  client.on('refresh', connectMasters)
  /** Left alone, a node connects with its first command, and commands beside that one fail. */
  function connectMasters(): void {
    for (const node of client.nodes('master')) if (node.status === 'wait') node.connect().catch(() => {})
  }

  return {
    commands: client as Redis | Cluster,
    isCluster: true,
    /** Resolves when all masters are connected. */
    async connect(): Promise<void> {
      await client.connect()
      const others = masters().filter(({ status }) => status !== 'ready')
      // All of them are awaited, so that every reason is known.
      const ends = await Promise.allSettled(others.map((node) => once(node, 'ready')))
      const failed = ends.find((end) => end.status === 'rejected')
      if (failed) throw failed.reason
    },
    masters,
    server: (key: string): string => server(hashSlot(hashTag(key))),
    /** Every server, with a hash tag that it keeps. */
    tags(): ReadonlyMap<string, string> {
      const tags = new Map<string, string>()
      for (let slot = 0; slot < SLOTS; slot++) {
        const name = server(slot)
        if (!tags.has(name)) tags.set(name, tagOf(slot))
      }
      return tags
    },
    /** Returns the connection to a server; throws an Error if there is none. */
    node(name: string): Redis {
      const node = nodeOf(name)
      if (node === undefined) throw new Error(`Redis is not connected: ${name}.`)
      return node
    },
    /** Why this server of a cluster is not connected; undefined if it is. */
    reason(name: string): Error | undefined {
      if (name === MASTERLESS) return new Error(MASTERLESS)
      return nodeOf(name)?.status === 'ready' ? undefined : reasons.get(name)
    },
    /** Drops an open connection and makes a new one. */
    reconnect(name: string): void {
      const node = nodeOf(name)
      // The refresh connects to it again.
      if (node) disconnect(node, false)
      client.refreshSlotsCache()
    },
    close: (): void => close(client, client.nodes()),
  }
}

/** `host:port` of a node, as the slots name it. */
const nameOf = ({ options }: Redis): string => `${options.host}:${options.port}`

/** Node.js may emit two errors for a TLS socket that is closed in its handshake; ioredis listens for one. */
function close(client: Redis | Cluster, connections: readonly { readonly stream?: Redis['stream'] }[]): void {
  for (const { stream } of connections) stream?.on('error', () => {})
  client.disconnect()
}

const disconnecting = new WeakSet<object>()

/** Ends an open connection, once. */
function disconnect(client: Redis, reconnect: boolean): void {
  const { stream, status } = client
  if ((status !== 'ready' && status !== 'connect') || disconnecting.has(stream)) return
  disconnecting.add(stream)
  client.disconnect(reconnect)
}
