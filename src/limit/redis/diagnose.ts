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
  '+eval +evalsha +set +getrange +strlen +setrange +pexpire +get +exists +zadd +zrem +zremrangebyscore +zcard +time +scan +unlink +info +select +client|setname +cluster|slots'

/** The commands that are sent to sentinels, as rules of ACL SETUSER. */
export const SENTINEL_GRANTS =
  '+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master +client|setname'

/** Error texts of Redis, Sentinel and TLS that no retry mends, and the remedy. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [
    /sentinel.*(?:\bWRONGPASS\b|\bNOAUTH\b|\bNOPERM\b|invalid password|Authentication required)/i,
    `the sentinels refuse the user; correct store.redis.sentinelUsername and store.redis.sentinelPassword, and grant it ${SENTINEL_GRANTS}.`,
  ],
  [
    /\bWRONGPASS\b|\bNOAUTH\b|invalid password|Authentication required/,
    'Redis refuses the user name or password; correct store.redis.username and store.redis.password.',
  ],
  [
    /\bNOPERM\b|user executing the script|ACL failure in script/,
    `the Redis user may not do what the store needs; grant it ${GRANTS} and the keys under store.prefix, such as ~sluice:*.`,
  ],
  [
    /cluster support disabled|unknown command [`'"]?(?:cluster|sentinel)/i,
    'store.redis names a server of another kind; write one server as url, nodes of a cluster as cluster, and sentinels (mostly port 26379) as sentinels with name.',
  ],
  [
    /No such master with that name|invalid reply: null/,
    'the sentinels know no master of this store.redis.name.',
  ],
  [
    /DB index is out of range/i,
    'store.redis.url names a database that this Redis does not have; write one that it has.',
  ],
  [
    /self[- ]signed certificate|unable to (?:verify|get local issuer)|certificate has expired|altnames/i,
    'the certificate of Redis is not trusted; set store.redis.tls.ca to the authority that signed it.',
  ],
]

/** Returns the remedy of an error that no retry mends; undefined for an outage. */
export function configError(error: unknown): StoreConfigError | undefined {
  if (error instanceof StoreConfigError) return error
  if (!(error instanceof Error)) return undefined
  const remedy = REMEDIES.find(([pattern]) => pattern.test(error.message))
  if (remedy) return new StoreConfigError(remedy[1], error)
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
export function isGeneric({ message }: Error): boolean {
  return /Connection is closed\.?$/.test(message)
}
