import { Redis } from 'ioredis'
import { toError } from '../../runtime/to-error.ts'
import { infoField } from './info.ts'
import { type RedisConfig, sentinelOptions, serverOptions, urlsOf } from './options.ts'

/** The remedies of states that a failover, or a renewed certificate, ends. */
const REPLICA =
  'store.redis.url is a replica; in a failover, the gateway reconnects until it is the master. Otherwise write the URL of the master, or sentinels with name.'
const EXPIRED =
  'the certificate of Redis is not valid at this time; renew it at Redis, or correct the clock of this machine.'

/** A mistake in the configuration of the store; the message says how to correct it. */
export class StoreConfigError extends Error {
  /** The remedy, without the answer of Redis. */
  readonly advice: string
  /** True if time may end it without a change of the file: the gateway starts, and connects again. */
  readonly mayPass: boolean

  constructor(advice: string, cause?: Error) {
    super(cause === undefined ? advice : `${advice} (Cause: ${cause.message})`, { cause })
    this.name = 'StoreConfigError'
    this.advice = advice
    this.mayPass = advice === REPLICA || advice === EXPIRED
  }
}

/** The commands that the store uses, as rules of ACL SETUSER. Its user also needs the keys under the prefix. */
export const GRANTS =
  '+eval +evalsha +hget +hgetall +hset +hdel +set +getrange +strlen +setrange +pexpire +get +exists +pttl +zadd +zrem +zremrangebyscore +zrange +zcard +time +scan +unlink +info +select +client|setname +cluster|slots'

/** The commands that the store sends to sentinels, as rules of ACL SETUSER. */
export const SENTINEL_GRANTS =
  '+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master +client|setname'

/** Maps each remedy to the permanent errors of Redis, Sentinel and TLS that it fixes; the first match applies. */
const REMEDIES: Readonly<Record<string, RegExp>> = {
  [`the sentinels refuse the user; correct store.redis.sentinelUsername and store.redis.sentinelPassword, and grant it ${SENTINEL_GRANTS}.`]:
    /sentinel.*(?:\bWRONGPASS\b|\bNOAUTH\b|\bNOPERM\b|invalid password|Authentication required)/i,
  'Redis refuses the user name or password; correct store.redis.username and store.redis.password.':
    /\bWRONGPASS\b|\bNOAUTH\b|invalid password|Authentication required/,
  [`the Redis user lacks permissions; grant it ${GRANTS} and the keys of store.prefix (~sluice:*).`]:
    /\bNOPERM\b|user executing the script|ACL failure in script/,
  'store.redis names a server of another kind; write one of url, cluster, and sentinels with name.':
    /cluster support disabled|unknown command [`'"]?(?:cluster|sentinel)/i,
  'the sentinels know no master of this store.redis.name.':
    /No such master with that name|invalid reply: null/,
  'store.redis.url names a database that this Redis does not have; write one that it has.':
    /DB index is out of range/i,
  [EXPIRED]: /certificate (?:has expired|is not yet valid)/i,
  'the certificate of Redis is not trusted; set store.redis.tls.ca to the authority that signed it.':
    /self[- ]signed|unable to (?:verify|get local issuer)|altnames/i,
}

/** Returns the remedy of an error that a retry does not fix; undefined for an outage. */
export function configError(error: unknown): StoreConfigError | undefined {
  if (error instanceof StoreConfigError) return error
  if (!(error instanceof Error)) return undefined
  const remedy = Object.keys(REMEDIES).find((text) => REMEDIES[text]!.test(error.message))
  if (remedy !== undefined) return new StoreConfigError(remedy, error)
  return configError(error.cause ?? (error as { lastNodeError?: unknown }).lastNodeError)
}

/** Fields of INFO, with the value that makes a server unusable as `store.redis.url`, and the remedy. */
const WRONG_SERVERS = [
  [
    'redis_mode',
    'sentinel',
    'store.redis.url is a Sentinel; write sentinels: [its URL] and name: its master.',
  ],
  [
    'cluster_enabled',
    '1',
    'store.redis.url is one node of a cluster; write cluster: [its URL] in place of url.',
  ],
  ['role', 'slave', REPLICA],
] as const

/**
 * Compares INFO with the configuration. Throws a StoreConfigError if the store must not use the
 * server; may return a warning.
 */
export function checkInfo({ topology }: RedisConfig, info: string): string | undefined {
  for (const [name, value, remedy] of 'url' in topology ? WRONG_SERVERS : []) {
    if (infoField(info, name) === value) throw new StoreConfigError(remedy)
  }
  const policy = infoField(info, 'maxmemory_policy') ?? 'noeviction'
  if (policy === 'noeviction' || Number(infoField(info, 'maxmemory') ?? '0') === 0) return undefined
  return `Redis may evict counters (${policy}) and lose calls; set maxmemory-policy to noeviction.`
}

/** True if an error reports only that a connection is closed. */
export const isGeneric = ({ message }: Error): boolean => /Connection is closed\.?$/.test(message)

/** The oldest version with every command of the store. */
const OLDEST_VERSION = '6.2'

/**
 * Describes each configured server, or returns why it cannot be used. Takes `timeoutMs` for each,
 * and writes nothing.
 */
export function inspectNodes(config: RedisConfig, timeoutMs: number) {
  const { topology } = config
  const nodes =
    'name' in topology
      ? sentinelOptions(topology, config).subscriptions
      : urlsOf(topology).map((url) => serverOptions(url, config))
  const once = { connectTimeout: timeoutMs, commandTimeout: timeoutMs, retryStrategy: () => null }
  const inspect = async (url: string, i: number) => {
    const node = new Redis({ ...nodes[i], ...once })
    let reason: Error | undefined
    node.on('error', (error: Error) => (reason = error))
    try {
      await node.connect()
      return { url, found: await describe(node, config) }
    } catch (thrown) {
      // The emitted error is more specific than "Connection is closed".
      const error = reason ?? toError(thrown)
      return { url, error: configError(error) ?? error }
    } finally {
      node.stream?.on('error', () => {})
      node.disconnect()
    }
  }
  return Promise.all(urlsOf(topology).map(inspect))
}

async function describe(node: Redis, { topology }: RedisConfig): Promise<string> {
  if ('name' in topology) {
    const master = await node.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', topology.name)
    if (!Array.isArray(master)) throw new Error('No such master with that name')
    return `knows the master "${topology.name}" at ${master.join(':')}`
  }
  const version = infoField(await node.info('server'), 'redis_version') ?? 'unknown'
  const isOld = version.localeCompare(OLDEST_VERSION, 'en', { numeric: true }) < 0
  if (isOld) throw new Error(`is Redis ${version}, and the store needs ${OLDEST_VERSION} or newer`)
  return `is Redis ${version}`
}
