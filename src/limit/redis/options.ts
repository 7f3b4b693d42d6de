import { isIP } from 'node:net'
import type { ConnectionOptions } from 'node:tls'
import { connectTimeoutMs } from './back-off.ts'

interface SentinelTopology {
  readonly sentinels: readonly string[]
  readonly name: string
  readonly sentinelUsername?: string | undefined
  readonly sentinelPassword?: string | undefined
  /** True if the master has no TLS, although the sentinels have it. */
  readonly isMasterPlain?: boolean | undefined
}

/** A Redis as configured, by URLs. */
export type RedisTopology =
  | { readonly url: string }
  | { readonly cluster: readonly string[] }
  | SentinelTopology

/** Credentials, which override those in the URLs. */
export interface RedisCredentials {
  readonly username?: string | undefined
  readonly password?: string | undefined
  /**
   * TLS options, with PEM certificates and keys. A `rediss://` URL turns TLS on without them; only the
   * URL of a sentinel decides whether the sentinel has TLS.
   */
  readonly tls?: ConnectionOptions | undefined
}

export type RedisConfig = RedisCredentials & { readonly topology: RedisTopology }

/** Returns the name that TLS sends (SNI), by which balancers route; RFC 6066 section 3 forbids addresses. */
export const serverName = (host: string | undefined): ConnectionOptions =>
  host === undefined || isIP(host) ? {} : { servername: host }

/** Parses `redis://`, `rediss://`, or the path of a socket (`/path`, `unix:///path`) into options of ioredis. */
export function redisAddress(url: string, credentials: RedisCredentials, defaultPort = 6379) {
  const path = /^(?:unix:\/\/)?(\/.*)$/.exec(url)?.[1]
  const parsed = path === undefined ? new URL(url) : undefined
  const secure = credentials.tls ?? (parsed?.protocol === 'rediss:' ? {} : undefined)
  const host = parsed?.hostname.replace(/^\[(.*)\]$/, '$1')
  return given({
    path,
    host,
    port: parsed && Number(parsed.port || defaultPort),
    username: credentials.username ?? (decodeURIComponent(parsed?.username ?? '') || undefined),
    password: credentials.password ?? (decodeURIComponent(parsed?.password ?? '') || undefined),
    db: Number(parsed?.pathname.slice(1)) || undefined,
    // Explicit: NODE_TLS_REJECT_UNAUTHORIZED changes the default.
    tls: secure && { rejectUnauthorized: true, ...serverName(host), ...secure },
  })
}

/** Returns the user and the password at Redis and at the sentinels, as ioredis names them. */
export function loginOf(config: RedisConfig) {
  const { username, password } = redisAddress(urlsOf(config.topology)[0]!, config)
  const { sentinelUsername, sentinelPassword } = config.topology as Partial<SentinelTopology>
  return { username, password, sentinelUsername, sentinelPassword }
}

/** Returns the configuration of the same servers with the login of `next`; without it if `next` names other servers. */
export const withLogin = (config: RedisConfig, next: RedisConfig): RedisConfig =>
  serversOf(next) === serversOf(config) ? { ...next, tls: config.tls } : config

/** Returns a text that differs if the servers do. */
const serversOf = ({ topology }: RedisConfig): string =>
  JSON.stringify({ ...topology, sentinelUsername: undefined, sentinelPassword: undefined })
    // The user and the password of a URL.
    .replaceAll(/(?<="rediss?:\/\/)[^/]*@/g, '')

export function urlsOf(topology: RedisTopology): readonly string[] {
  if ('url' in topology) return [topology.url]
  return 'cluster' in topology ? topology.cluster : topology.sentinels
}

/** Describes a Redis for operators, without credentials. */
export function describeTopology(topology: RedisTopology): string {
  const urls = urlsOf(topology).map((url) => (url.startsWith('redis') ? new URL(url).host : url))
  if ('url' in topology) return `Redis at ${urls[0]}`
  return `The ${'cluster' in topology ? 'cluster' : 'master of the sentinels'} at ${urls.join(', ')}`
}

/** Options with which commands fail at once instead of queueing, retrying or waiting. */
const CONNECTION = {
  lazyConnect: true,
  enableOfflineQueue: false,
  enableReadyCheck: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: connectTimeoutMs(0),
  disconnectTimeout: 50,
  keepAlive: 5000,
  connectionName: 'sluice',
  disableClientInfo: true,
  // RESP 2 suffices for charge.lua, and old servers and proxies refuse the HELLO command of RESP 3.
  protocol: 2,
} as const

export function serverOptions(url: string, credentials: RedisCredentials) {
  return { ...CONNECTION, ...redisAddress(url, credentials) }
}

/**
 * Adds the name that is sent to a server by TLS (SNI) to its announced address, `host:port`. ioredis
 * connects with what its map of addresses returns, and the name of the file, if any, replaces this.
 */
function withServerName(address: string): { host: string; port: number } {
  const end = address.lastIndexOf(':')
  const host = address.slice(0, end)
  return { ...serverName(host), host, port: Number(address.slice(end + 1)) }
}

/** Returns the options of the master that the sentinels name, and of a subscription to each sentinel. */
export function sentinelOptions(topology: SentinelTopology, credentials: RedisCredentials) {
  const { sentinels, name, sentinelUsername, sentinelPassword, isMasterPlain } = topology
  const { username, password } = credentials
  const areSecure = sentinels[0]!.startsWith('rediss:')
  const own = {
    username: sentinelUsername,
    password: sentinelPassword,
    tls: areSecure ? credentials.tls : undefined,
  }
  const addresses = sentinels.map((url) => redisAddress(url, own, 26_379))
  // Without the name of the first sentinel, which would be expected of every server.
  const tls = { rejectUnauthorized: true, ...credentials.tls }
  const isSecure = !isMasterPlain && (areSecure || credentials.tls !== undefined)
  const master = {
    ...CONNECTION,
    sentinels: addresses.map(({ host, port }) => ({ host: host!, port: port! })),
    name,
    // Despite its name: TLS to the master.
    enableTLSForSentinelMode: true,
    // Sentinels announce their ports for servers, which have TLS as the servers have it.
    updateSentinels: areSecure === isSecure,
    ...given({
      sentinelUsername,
      sentinelPassword,
      username,
      password,
      tls: isSecure ? tls : undefined,
      sentinelTLS: areSecure ? tls : undefined,
      natMap: isSecure ? withServerName : undefined,
    }),
  }
  const subscription = { ...CONNECTION, autoResubscribe: false }
  return { master, subscriptions: addresses.map((address) => ({ ...subscription, ...address })) }
}

export function clusterOptions(urls: readonly string[], credentials: RedisCredentials) {
  const nodes = urls.map((url) => redisAddress(url, credentials))
  const { username, password } = nodes[0]!
  // Without the name of the first node, which would be expected of every node.
  const tls = nodes[0]!.tls && { rejectUnauthorized: true, ...credentials.tls }
  const options = {
    lazyConnect: true,
    enableOfflineQueue: false,
    // The ready check asks a node that is not connected yet, so that the cluster would reconnect forever.
    enableReadyCheck: false,
    maxRedirections: 4,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 20,
    slotsRefreshInterval: 2000,
    // Certificates name hosts, not their addresses.
    ...(tls && {
      dnsLookup: (host: string, done: (error: null, address: string) => void) => done(null, host),
    }),
    redisOptions: { ...CONNECTION, ...given({ username, password, tls }) },
  }
  return { nodes, options }
}

/** Omits the properties that are undefined. */
const given = <T extends object>(options: T) =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as {
    [Name in keyof T]?: Exclude<T[Name], undefined>
  }
