import { once } from 'node:events'
import { Cluster, Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import { connectTimeoutMs, reconnectDelayMs } from './back-off.ts'
import { isGeneric } from './diagnose.ts'
import { hashSlot, SLOTS, tagOf } from './hash-slot.ts'
import { acceptOpenness } from './no-password.ts'
import {
  clusterOptions,
  loginOf,
  type RedisConfig,
  sentinelOptions,
  serverName,
  serverOptions,
} from './options.ts'

/** A client of one server or of a cluster. A `server` is `redis`, or `host:port` in a cluster. */
export type RedisClient = ReturnType<typeof openCluster>
type OnError = (error: Error) => void

/** Opens a client. The events of `commands` are those of the connection. */
export function openClient(config: RedisConfig, onError: OnError): RedisClient {
  const { topology } = config
  if ('cluster' in topology) return openCluster(topology.cluster, config, onError)
  if ('url' in topology) return openServer(backOff(new Redis(serverOptions(topology.url, config))))
  const { master, subscriptions } = sentinelOptions(topology, config)
  const client = backOff(new Redis(master))
  const watchers = subscriptions.map((options) => backOff(new Redis(options)))
  // The sentinels announce a new master before the old one ends its connections.
  for (const watcher of watchers) {
    client.once('ready', () => void watcher.connect().catch(() => {}))
    watcher.on('error', () => {})
    watcher.on('ready', () => void watcher.subscribe('+switch-master').catch(() => {}))
    watcher.on('message', (_, message: string) => {
      if (!message.startsWith(`${topology.name} `)) return
      disconnect(client)
      // Gives the former master up, whose machine may not answer for the whole timeout.
      if (client.status === 'connecting') client.stream?.destroy()
    })
  }
  return openServer(client, watchers)
}

/** Makes a connection reconnect with growing timeouts and pauses, also to sentinels. */
function backOff(connection: Redis): Redis {
  const { options } = connection
  const retry = (attempt: number): number => {
    options.connectTimeout = options.sentinelCommandTimeout = connectTimeoutMs(attempt - 1)
    return reconnectDelayMs(attempt - 1)
  }
  options.retryStrategy = options.sentinelRetryStrategy = retry
  options.sentinelCommandTimeout = connectTimeoutMs(0)
  return acceptOpenness(connection)
}

const openServer = (client: Redis, watchers: readonly Redis[] = []): RedisClient => ({
  commands: client,
  connect: () => client.connect(),
  masters: () => [client],
  slot: () => 0,
  server: () => 'redis',
  tags: () => new Map([['redis', '']]),
  node: () => client,
  reason: () => undefined,
  reconnect: () => disconnect(client),
  renew(login) {
    Object.assign(client.options, login)
    const { sentinelUsername: username, sentinelPassword: password } = login
    for (const watcher of watchers) Object.assign(watcher.options, { username, password })
  },
  close() {
    for (const connection of [...watchers, client]) close(connection, [connection])
  },
})

/** Maximum nodes of a cluster whose state is kept. */
const MAX_NODES = 1000
/** The `server` of keys whose slot has no master. */
const MASTERLESS = 'slots without a master'

function openCluster(urls: readonly string[], config: RedisConfig, onError: OnError) {
  const { nodes, options } = clusterOptions(urls, config)
  const configured = nodes.length
  const client = new Cluster(nodes, options)
  /** The nodes that the cluster named last, which may have replaced all configured ones. */
  let known: readonly { readonly host: string; readonly port: number }[] = []
  client.on('refresh', () => {
    known = client.nodes().map(({ options: { host, port } }) => ({ host: host!, port: port! }))
  })
  client.options.clusterRetryStrategy = (attempt) => {
    // ioredis connects to these nodes. If a configured node answers, the others are not asked: their
    // addresses may belong to another cluster by now.
    nodes.splice(configured, Infinity, ...(attempt === 1 ? [] : known.slice(0, MAX_NODES)))
    client.options.slotsRefreshTimeout = connectTimeoutMs(attempt - 1)
    return reconnectDelayMs(attempt - 1)
  }
  client.on('ready', () => (client.options.slotsRefreshTimeout = connectTimeoutMs(0)))
  let login = loginOf(config)
  /** `host:port` of a node → why it is not connected; includes nodes that left. */
  const reasons = new LRUCache<string, Error>({ max: MAX_NODES })
  /** `host:port` of a node → attempts to connect since it was connected. */
  const attempts = new LRUCache<string, number>({ max: MAX_NODES })

  const masters = (): readonly Redis[] => (client.status === 'ready' ? client.nodes('master') : [])
  const serverOf = (slot: number): string =>
    client.slots[slot]?.[0] ?? (client.slots.length === 0 ? 'unknown' : MASTERLESS)
  const nodeOf = (name: string) => client.nodes('master').find((node) => nameOf(node) === name)

  client.on('node error', (error: Error, name: string) => {
    const reason = new Error(`${name}: ${error.message}`, { cause: error })
    if (!reasons.has(name) || !isGeneric(error)) reasons.set(name, reason)
    onError(reason)
  })
  client.on('+node', (node: Redis) => {
    // The cluster creates nodes with the login of its start.
    const name = nameOf(node)
    const failed = attempts.get(name) ?? 0
    Object.assign(node.options, login, { connectTimeout: connectTimeoutMs(failed) })
    acceptOpenness(node)
    const { host, tls } = node.options
    if (tls) node.options.tls = { ...serverName(host), ...tls }
    node.once('connecting', () => attempts.set(name, failed + 1))
    node.on('ready', () => {
      reasons.delete(name)
      attempts.delete(name)
    })
    // Connect the masters that wait for their first command: other commands sent at the same time would fail.
    for (const node of client.nodes('master')) if (node.status === 'wait') node.connect().catch(() => {})
  })

  return {
    commands: client as Redis | Cluster,
    /** Resolves when all masters are connected. */
    async connect(): Promise<void> {
      await client.connect()
      const others = masters().filter(({ status }) => status !== 'ready')
      // Wait for all of them, so that every reason is recorded.
      const ends = await Promise.allSettled(others.map((node) => once(node, 'ready')))
      const failed = ends.find((end) => end.status === 'rejected')
      if (failed) throw failed.reason
    },
    masters,
    /** Returns the slot of a key, 0 outside a cluster. */
    slot: hashSlot,
    server: (key: string): string => serverOf(hashSlot(key)),
    /** Returns every server, with a hash tag whose keys it holds. */
    tags(): ReadonlyMap<string, string> {
      const tags = new Map<string, string>()
      for (let slot = 0; slot < SLOTS; slot++) {
        const name = serverOf(slot)
        if (!tags.has(name)) tags.set(name, tagOf(slot))
      }
      return tags
    },
    node: nodeOf,
    /** Returns why this server of a cluster is not connected; undefined if it is. */
    reason(name: string): Error | undefined {
      if (name === MASTERLESS) return new Error(MASTERLESS)
      return nodeOf(name)?.status === 'ready' ? undefined : reasons.get(name)
    },
    /** Replaces an open connection by a new one, which in a cluster the refresh opens. */
    reconnect(name: string): void {
      const node = nodeOf(name)
      if (node) disconnect(node)
      client.refreshSlotsCache()
    },
    /** Makes new connections use another login; those that are open stay. */
    renew(next: typeof login): void {
      login = next
      for (const node of client.nodes()) Object.assign(node.options, login)
    },
    close: (): void => close(client, client.nodes()),
  }
}

/** Returns `host:port` of a node, as the slots name it. */
const nameOf = ({ options }: Redis): string => `${options.host}:${options.port}`

/** Handles a second error of a TLS socket that is closed in its handshake: ioredis listens for one only. */
function close(client: Redis | Cluster, connections: readonly Partial<Redis>[]): void {
  for (const { stream } of connections) stream?.on('error', () => {})
  client.disconnect()
}

const disconnecting = new WeakSet<object>()

/** Ends an open connection, once. It connects again by itself, unless it is one of a cluster. */
function disconnect(client: Redis): void {
  const { stream, status } = client
  if ((status !== 'ready' && status !== 'connect') || disconnecting.has(stream)) return
  disconnecting.add(stream)
  client.disconnect(true)
}
