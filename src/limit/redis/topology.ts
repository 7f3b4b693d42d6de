import { SLOTS } from './hash-slot.ts'
import type { RedisTopology } from './options.ts'

/** What is wrong with the configuration of a store, and what to write instead: the gateway must not start with it. */
export class StoreConfigError extends Error {
  /** The same for all that is mended in the same way, whatever Redis said. */
  readonly advice: string

  constructor(advice: string, cause?: Error) {
    super(cause === undefined ? advice : `${advice} (It said: ${cause.message})`, { cause })
    this.name = 'StoreConfigError'
    this.advice = advice
  }
}

/** What the store asks a Redis user to be granted, beside the keys under its prefix: rules as ACL SETUSER takes them. */
export const GRANTS =
  '+eval +evalsha +set +getrange +strlen +setrange +pexpire +get +exists +zadd +zrem +zremrangebyscore +zcard +time +scan +unlink +info +select +client|setname +cluster|slots'

/** What is asked of the sentinels, as rules of ACL SETUSER. */
export const SENTINEL_GRANTS =
  '+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master +client|setname'

const REFUSED = 'Redis refuses the user name or password; correct them in store.redis.'
const ASKED = 'Redis asks for a password; set store.redis.password.'

/** Is that all of it said, better, by what was told before? Who was refused is then asked for a password with every command. */
export function isSaid(advice: string, told: string | undefined): boolean {
  return advice === told || (advice === ASKED && told === REFUSED)
}

/** Error texts of Redis, Sentinel and TLS that no waiting mends, and the remedy. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [
    /sentinel.*(?:\bWRONGPASS\b|invalid password)/i,
    'the sentinels refuse the user name or password; correct store.redis.sentinelUsername and store.redis.sentinelPassword.',
  ],
  [
    /sentinel.*(?:\bNOAUTH\b|Authentication required)/i,
    'the sentinels ask for a password of their own; set store.redis.sentinelPassword.',
  ],
  [/sentinel.*\bNOPERM\b/i, `the sentinels’ user may not do what is needed; grant it ${SENTINEL_GRANTS}.`],
  [/\bWRONGPASS\b|invalid password/, REFUSED],
  [/\bNOAUTH\b|Authentication required/, ASKED],
  [
    /\bNOPERM\b|user executing the script|ACL failure in script/,
    `the Redis user may not do what the store needs; grant it ${GRANTS} and the keys under store.prefix, such as ~sluice:*.`,
  ],
  [
    /cluster support disabled/,
    'store.redis.cluster names a server that is not part of a cluster; write its URL in store.redis.url.',
  ],
  [
    /unknown command [`'"]?cluster/i,
    'store.redis.cluster names a Sentinel, or a server that knows no clusters; write the URLs of the nodes.',
  ],
  [
    /No such master with that name|invalid reply: null/,
    'the sentinels know no master of the name in store.redis.name.',
  ],
  [
    /unknown command [`'"]?sentinel/i,
    'store.redis.sentinels names a server that is no Sentinel; write the addresses of the sentinels, mostly port 26379.',
  ],
  [
    /self[- ]signed certificate|unable to (?:verify|get local issuer)|certificate has expired|altnames/i,
    'the certificate of Redis is not trusted; set store.redis.tls.ca to the authority that signed it.',
  ],
]

/** The remedy of an error that no waiting mends; undefined of an outage. */
export function configError(error: unknown): StoreConfigError | undefined {
  if (error instanceof StoreConfigError) return error
  for (
    let at = error;
    at instanceof Error;
    at = at.cause ?? (at as { lastNodeError?: unknown }).lastNodeError
  ) {
    const { message } = at
    const remedy = REMEDIES.find(([pattern]) => pattern.test(message))
    if (remedy) return new StoreConfigError(remedy[1], at)
  }
  return undefined
}

/** What to write instead where a Sentinel is taken for the server. */
export const IS_SENTINEL =
  'store.redis.url is a Sentinel, which keeps no data; write sentinels: [its URL] and name: the name of its master.'

/** What to write instead where a server refused to select a database because it has none of that number. */
export function missingDatabase(db: number, error: Error): StoreConfigError | undefined {
  if (!/index is out of range/i.test(error.message)) return undefined
  return new StoreConfigError(
    `store.redis.url names database ${db}, which this Redis does not have; write one that it has, or raise "databases" in its configuration.`,
    error,
  )
}

/** Compares what a server says of itself (the text of INFO) with how it is configured; throws a StoreConfigError. */
export function checkTopology(topology: RedisTopology, info: string): void {
  const field = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
  if (!('url' in topology)) return
  if (field('redis_mode') === 'sentinel') {
    throw new StoreConfigError(IS_SENTINEL)
  }
  if (field('cluster_enabled') === '1') {
    throw new StoreConfigError(
      'store.redis.url is one node of a cluster, which serves a part of the keys alone; write cluster: [its URL] in place of url.',
    )
  }
  if (field('role') === 'slave') {
    throw new StoreConfigError(
      `store.redis.url is a replica of ${field('master_host') ?? '?'}:${field('master_port') ?? '?'} and takes no writes; write the URL of the master, or sentinels: […] with name.`,
    )
  }
}

/** What the operator should know of a server that lets everybody in. */
export const NEEDLESS_PASSWORD =
  'Redis asks for no password, though store.redis has one: whoever reaches it may read and change the counters; set requirepass there, or leave the password out.'

/** What the operator should know of a server that can be used: an eviction policy forgets counters when memory is short. */
export function topologyWarnings(info: string): readonly string[] {
  const policy = /^maxmemory_policy:(.*?)\r?$/m.exec(info)?.[1]
  const max = Number(/^maxmemory:(\d+)/m.exec(info)?.[1] ?? '0')
  if (max === 0 || policy === undefined || policy === 'noeviction') return []
  return [
    `Redis may evict counters when its memory is full (maxmemory-policy ${policy}), and so forget calls; set maxmemory-policy to noeviction.`,
  ]
}

/** What the operator should know of a cluster of which so many slots have no master. */
export function unservedWarning(slots: number): string {
  return `${slots} of the ${SLOTS} slots of the cluster have no master, and store.onOutage decides for the keys in them; assign them, as with: redis-cli --cluster fix <host:port>.`
}
