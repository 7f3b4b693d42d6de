import type { ConnectionOptions } from 'node:tls'

/** A Redis as configured: one server, some nodes of a cluster, or the sentinels of a master. */
export type RedisTopology =
  | { readonly url: string }
  | { readonly cluster: readonly string[] }
  | {
      readonly sentinels: readonly string[]
      readonly name: string
      readonly sentinelUsername?: string | undefined
      readonly sentinelPassword?: string | undefined
    }

export interface RedisCredentials {
  /** In place of those in the URLs. */
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** TLS is on too where the URL starts with `rediss://`. Certificates and keys are PEM. */
  readonly tls?: ConnectionOptions | undefined
}

/** Reads `redis://`, `rediss://`, or the path of a socket (`/path`, `unix:///path`) into options of ioredis. */
export function redisAddress(url: string, { username, password, tls }: RedisCredentials, defaultPort = 6379) {
  const path = /^(?:unix:\/\/)?(\/.*)$/.exec(url)?.[1]
  const parsed = path === undefined ? new URL(url) : undefined
  return given({
    path,
    host: parsed?.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: parsed && Number(parsed.port || defaultPort),
    username: username ?? (decodeURIComponent(parsed?.username ?? '') || undefined),
    password: password ?? (decodeURIComponent(parsed?.password ?? '') || undefined),
    db: Number(parsed?.pathname.slice(1)) || undefined,
    tls: tls ?? (parsed?.protocol === 'rediss:' ? {} : undefined),
  })
}

const shown = (url: string): string => (url.startsWith('redis') ? new URL(url).host : url)

/** Describes a Redis for operators, without credentials. */
export function describeTopology(topology: RedisTopology): string {
  if ('url' in topology) return `Redis at ${shown(topology.url)}`
  if ('cluster' in topology) return `The cluster at ${topology.cluster.map(shown).join(', ')}`
  return `The master of the sentinels at ${topology.sentinels.map(shown).join(', ')}`
}

/** Back-off of reconnecting: 50 to 500 ms, so that recovery is seen within seconds. */
const reconnectDelayMs = (times: number): number => Math.min(50 * times, 500)

/** Every connection fails at once rather than queue, retry or wait. */
const CONNECTION = {
  autoResendUnfulfilledCommands: false,
  enableAutoPipelining: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 1000,
  disconnectTimeout: 50,
  maxLoadingRetryTime: 500,
  keepAlive: 5000,
  connectionName: 'sluice',
  disableClientInfo: true,
  // RESP 2 is enough for charge.lua, and spares old servers and proxies the HELLO that they refuse.
  protocol: 2,
} as const

const LONE_CONNECTION = {
  ...CONNECTION,
  lazyConnect: true,
  enableOfflineQueue: false,
  retryStrategy: reconnectDelayMs,
} as const

export function serverOptions(url: string, credentials: RedisCredentials) {
  return { ...LONE_CONNECTION, enableReadyCheck: false, ...redisAddress(url, credentials) }
}

/** ioredis's options for the master that sentinels name, and for a subscription to each of them. */
export function sentinelOptions(
  { sentinels, name, sentinelUsername, sentinelPassword }: Extract<RedisTopology, { readonly name: string }>,
  { username, password, tls }: RedisCredentials,
) {
  const own = { username: sentinelUsername, password: sentinelPassword, tls }
  const addresses = sentinels.map((url) => redisAddress(url, own, 26_379))
  const sentinelTLS = addresses[0]!.tls
  const master = {
    ...LONE_CONNECTION,
    sentinels: addresses.map(({ host, port }) => ({ host: host!, port: port! })),
    name,
    sentinelRetryStrategy: reconnectDelayMs,
    sentinelCommandTimeout: 1000,
    enableTLSForSentinelMode: sentinelTLS !== undefined,
    ...given({ sentinelUsername, sentinelPassword, username, password, tls: sentinelTLS, sentinelTLS }),
  }
  const subscription = {
    ...LONE_CONNECTION,
    enableReadyCheck: false,
    autoResubscribe: false,
    retryStrategy: () => 1000,
  }
  return { master, subscriptions: addresses.map((address) => ({ ...subscription, ...address })) }
}

export function clusterOptions(nodes: readonly ReturnType<typeof redisAddress>[]) {
  const { username, password, tls } = nodes[0]!
  return {
    lazyConnect: true,
    // ioredis reads it at this level only.
    enableOfflineQueue: false,
    // The check asks a node that is not connected yet, and so the cluster would reconnect again and again.
    enableReadyCheck: false,
    clusterRetryStrategy: reconnectDelayMs,
    maxRedirections: 4,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 20,
    slotsRefreshTimeout: 1000,
    slotsRefreshInterval: 2000,
    // Certificates name hosts, not the addresses that they resolve to.
    ...(tls && {
      dnsLookup: (host: string, done: (error: null, address: string) => void) => done(null, host),
    }),
    redisOptions: { ...CONNECTION, enableReadyCheck: false, ...given({ username, password, tls }) },
  }
}

/** Leaves out what is undefined. */
function given<T extends object>(options: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T
}
