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

/** Options of node:tls; certificates and keys as PEM. */
export interface RedisTls {
  readonly ca?: string | undefined
  readonly cert?: string | undefined
  readonly key?: string | undefined
  readonly servername?: string | undefined
  readonly rejectUnauthorized?: boolean | undefined
}

export interface RedisCredentials {
  /** In place of those in the URLs. */
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** TLS is on too where the URL starts with `rediss://`. */
  readonly tls?: RedisTls | undefined
}

/** A server's address and credentials, as ioredis takes them. */
export interface RedisAddress {
  readonly host?: string
  readonly port?: number
  readonly path?: string
  readonly username?: string
  readonly password?: string
  readonly db?: number
  readonly tls?: RedisTls
}

/** The default port of a sentinel. */
export const SENTINEL_PORT = 26_379
const DEFAULT_PORTS = { 'redis:': 6379, 'rediss:': 6379, 'sentinel:': SENTINEL_PORT } as const

/** Reads `redis://`, `rediss://`, or the path of a socket (`/path`, `unix:/path`); throws a TypeError of anything else. */
export function redisAddress(
  url: string,
  { username, password, tls }: RedisCredentials,
  defaultPort?: number,
): RedisAddress {
  const own = given({ username, password })
  const path = /^(?:unix:(?:\/\/)?)?(\/.*)$/.exec(url)?.[1]
  if (path !== undefined) return { path, ...own }
  const parsed = new URL(url)
  const standard = DEFAULT_PORTS[parsed.protocol as keyof typeof DEFAULT_PORTS]
  if (standard === undefined) throw new TypeError('A Redis URL starts with redis:// or rediss://.')
  const db = Number(parsed.pathname.slice(1) || '0')
  if (!Number.isInteger(db)) throw new TypeError('The path of a Redis URL is the number of a database.')
  return {
    host: parsed.hostname.replace(/^\[(.*)\]$/, '$1') || '127.0.0.1',
    port: parsed.port === '' ? (defaultPort ?? standard) : Number(parsed.port),
    ...(parsed.username !== '' && { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password !== '' && { password: decodeURIComponent(parsed.password) }),
    ...own,
    ...(db !== 0 && { db }),
    ...((tls !== undefined || parsed.protocol === 'rediss:') && { tls: tls ?? {} }),
  }
}

/** Describes a Redis for operators, by its addresses as configured, without credentials. */
export function describeTopology(topology: RedisTopology): string {
  if ('url' in topology) return `Redis at ${shown(topology.url)}`
  if ('cluster' in topology) return `The cluster at ${topology.cluster.map((url) => shown(url)).join(', ')}`
  const sentinels = topology.sentinels.map((url) => shown(url, SENTINEL_PORT))
  return `The master of the sentinels at ${sentinels.join(', ')}`
}

/** `host:port` of a URL, or the path of a socket. */
function shown(url: string, defaultPort?: number): string {
  const { path, host = '', port } = redisAddress(url, {}, defaultPort)
  return path ?? `${host.includes(':') ? `[${host}]` : host}:${port}`
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

/** ioredis's options for one server. */
export function serverOptions(url: string, credentials: RedisCredentials) {
  return { ...LONE_CONNECTION, enableReadyCheck: false, ...redisAddress(url, credentials) }
}

/** ioredis's options for the master that sentinels name; the two have credentials of their own. */
export function sentinelOptions(
  { sentinels, name, sentinelUsername, sentinelPassword }: Extract<RedisTopology, { readonly name: string }>,
  { username, password, tls }: RedisCredentials,
) {
  const addresses = sentinels.map((url) => redisAddress(url, { tls }, SENTINEL_PORT))
  const [first] = addresses
  return {
    ...LONE_CONNECTION,
    sentinels: addresses.map(({ host, port }) => ({ host: host!, port: port! })),
    name,
    role: 'master' as const,
    sentinelRetryStrategy: reconnectDelayMs,
    sentinelCommandTimeout: 1000,
    ...given({ sentinelUsername, sentinelPassword, username, password }),
    ...(first?.tls && { tls: first.tls, sentinelTLS: first.tls, enableTLSForSentinelMode: true }),
  }
}

/** ioredis's options for a subscription to each sentinel. */
export function watcherOptions(
  { sentinels, sentinelUsername, sentinelPassword }: Extract<RedisTopology, { readonly name: string }>,
  { tls }: RedisCredentials,
) {
  const own = given({ username: sentinelUsername, password: sentinelPassword, tls })
  return sentinels.map((url) => ({
    ...LONE_CONNECTION,
    enableReadyCheck: false,
    autoResubscribe: false,
    retryStrategy: () => 1000,
    ...redisAddress(url, own, SENTINEL_PORT),
  }))
}

/** ioredis's options for a cluster with these nodes. */
export function clusterOptions(nodes: readonly RedisAddress[]) {
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
