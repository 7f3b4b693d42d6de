import type { RedisTopology } from './options.ts'

/** A mistake in the configuration of the store; the message says what to write instead. */
export class StoreConfigError extends Error {
  /** The remedy, without what Redis answered. */
  readonly advice: string

  constructor(advice: string, cause?: Error) {
    super(cause === undefined ? advice : `${advice} (It said: ${cause.message})`, { cause })
    this.name = 'StoreConfigError'
    this.advice = advice
  }
}

/** The commands that a Redis user of the store needs, as rules of ACL SETUSER, beside the keys under its prefix. */
export const GRANTS =
  '+eval +evalsha +hget +hgetall +hset +hdel +set +getrange +strlen +setrange +pexpire +get +exists +zadd +zrem +zremrangebyscore +zcard +time +scan +unlink +info +select +client|setname +cluster|slots'

/** The commands that are sent to sentinels, as rules of ACL SETUSER. */
export const SENTINEL_GRANTS =
  '+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master +client|setname'

/** Remedy → the error texts of Redis, Sentinel and TLS that it mends and no retry does; the first that matches counts. */
const REMEDIES: Readonly<Record<string, RegExp>> = {
  [`the sentinels refuse the user; correct store.redis.sentinelUsername and store.redis.sentinelPassword, and grant it ${SENTINEL_GRANTS}.`]:
    /sentinel.*(?:\bWRONGPASS\b|\bNOAUTH\b|\bNOPERM\b|invalid password|Authentication required)/i,
  'Redis refuses the user name or password; correct store.redis.username and store.redis.password.':
    /\bWRONGPASS\b|\bNOAUTH\b|invalid password|Authentication required/,
  [`the Redis user may not do what the store needs; grant it ${GRANTS} and the keys under store.prefix, such as ~sluice:*.`]:
    /\bNOPERM\b|user executing the script|ACL failure in script/,
  'store.redis names a server of another kind; write one server as url, nodes of a cluster as cluster, and sentinels (mostly port 26379) as sentinels with name.':
    /cluster support disabled|unknown command [`'"]?(?:cluster|sentinel)/i,
  'the sentinels know no master of this store.redis.name.':
    /No such master with that name|invalid reply: null/,
  'store.redis.url names a database that this Redis does not have; write one that it has.':
    /DB index is out of range/i,
  'the certificate of Redis is not trusted; set store.redis.tls.ca to the authority that signed it.':
    /self[- ]signed certificate|unable to (?:verify|get local issuer)|certificate has expired|altnames/i,
}

/** Returns the remedy of an error that no retry mends; undefined for an outage. */
export function configError(error: unknown): StoreConfigError | undefined {
  if (error instanceof StoreConfigError) return error
  if (!(error instanceof Error)) return undefined
  const remedy = Object.keys(REMEDIES).find((one) => REMEDIES[one]!.test(error.message))
  if (remedy !== undefined) return new StoreConfigError(remedy, error)
  return configError(error.cause ?? (error as { lastNodeError?: unknown }).lastNodeError)
}

/** Fields of INFO that a lone server must not show, and the remedy. */
const WRONG_SERVERS = [
  ['redis_mode', 'sentinel', 'a Sentinel; write sentinels: [its URL] and name: the name of its master.'],
  ['cluster_enabled', '1', 'one node of a cluster; write cluster: [its URL] in place of url.'],
  ['role', 'slave', 'a replica, which takes no writes; write the URL of the master, or sentinels with name.'],
] as const

/** Compares INFO with the configuration: throws a StoreConfigError if the store must not use the server; may return a warning. */
export function checkInfo(topology: RedisTopology, info: string): string | undefined {
  const field = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
  for (const [name, value, remedy] of 'url' in topology ? WRONG_SERVERS : []) {
    if (field(name) === value) throw new StoreConfigError(`store.redis.url is ${remedy}`)
  }
  const policy = field('maxmemory_policy') ?? 'noeviction'
  if (policy === 'noeviction' || Number(field('maxmemory') ?? '0') === 0) return undefined
  return `Redis may evict counters when its memory is full (maxmemory-policy ${policy}), and so forget calls; set maxmemory-policy to noeviction.`
}

/** True if an error says only that a connection is closed. */
export const isGeneric = ({ message }: Error): boolean => /Connection is closed\.?$/.test(message)
