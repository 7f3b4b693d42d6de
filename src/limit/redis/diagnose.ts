import { Redis } from 'ioredis'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { toError } from '../../runtime/to-error.ts'
import { createDeadlines } from './deadlines.ts'
import { firstWord } from './first-word.ts'
import { describeServer, infoField, versionFault } from './info.ts'
import { acceptOpenness } from './no-password.ts'
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

/** Matches the errors of a user who may call the command, but not with these keys. */
const KEYS_REFUSED = /permissions to access (?:one of the keys|a key)|access at least one of the keys/

/** Maps each remedy to the permanent errors of Redis, Sentinel and TLS that it fixes; the first match applies. */
const REMEDIES: Readonly<Record<string, RegExp>> = {
  [`the sentinels refuse the user; correct store.redis.sentinelUsername and store.redis.sentinelPassword, and grant it ${SENTINEL_GRANTS}.`]:
    /sentinel.*(?:\bWRONGPASS\b|\bNOAUTH\b|\bNOPERM\b|invalid password|Authentication required)/i,
  'Redis refuses the user name or password; correct store.redis.username and store.redis.password.':
    /\bWRONGPASS\b|\bNOAUTH\b|invalid password|Authentication required/,
  'the Redis user may not read and write the keys of the gateway; grant it ~PREFIX:*, with your store.prefix (by default sluice) as PREFIX.':
    KEYS_REFUSED,
  [`the Redis user lacks permissions; grant it ${GRANTS} and the keys of store.prefix (~sluice:*).`]:
    /\bNOPERM\b|user executing the script|ACL failure in script/,
  'store.redis names a server of another kind; write one of url, cluster, and sentinels with name.':
    /cluster support disabled|unknown command [`'"]?(?:cluster|sentinel)/i,
  'the sentinels know no master of this store.redis.name.':
    /No such master with that name|invalid reply: null/,
  'store.redis.url names a database that this Redis does not have; write one that it has.':
    /DB index is out of range/i,
  [EXPIRED]: /certificate (?:has expired|is not yet valid)/i,
  'the certificate of Redis is for other names; write one of them in store.redis.url, or set store.redis.tls.servername to it.':
    /altnames/i,
  'the certificate of Redis is not trusted; set store.redis.tls.ca to the authority that signed it.':
    /self[- ]signed|unable to (?:verify|get local issuer)/i,
  'Redis asks for a client certificate of an authority that it trusts; set store.redis.tls.cert and store.redis.tls.key.':
    /alert (?:certificate required|unknown ca|bad certificate)/i,
}

/** Returns the remedy of an error that a retry does not fix; undefined for an outage. */
export function configError(error: unknown): StoreConfigError | undefined {
  if (error instanceof StoreConfigError) return error
  if (!(error instanceof Error)) return undefined
  const remedy = Object.keys(REMEDIES).find((text) => REMEDIES[text]!.test(error.message))
  if (remedy !== undefined) return new StoreConfigError(remedy, error)
  return configError(error.cause ?? (error as { lastNodeError?: unknown }).lastNodeError)
}

const SENTINEL = 'store.redis.url is a Sentinel; write sentinels: [its URL] and name: its master.'

/** Fields of INFO, with the value that makes a server unusable as `store.redis.url`, and the remedy. */
const WRONG_SERVERS = [
  ['redis_mode', 'sentinel', SENTINEL],
  // Valkey 8.
  ['server_mode', 'sentinel', SENTINEL],
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
  const fault = versionFault(info)
  if (fault !== undefined) return `The server of store.redis ${fault}.`
  const policy = infoField(info, 'maxmemory_policy')?.trim() ?? 'noeviction'
  if (policy === 'noeviction' || Number(infoField(info, 'maxmemory') ?? '0') === 0) return undefined
  return `Redis may evict counters (${policy}) and lose calls; set maxmemory-policy to noeviction.`
}

/** True if an error reports only that a connection is closed, as ioredis says it of a closed one and of one that closes. */
export const isGeneric = ({ message }: Error): boolean =>
  /Connection is closed\.?$|^Stream isn't writeable/.test(message)

/** A server as configured: what it is, or why it cannot be used, with the remedy. */
export type InspectedServer =
  | { readonly url: string; readonly found: string }
  | { readonly url: string; readonly fault: string }

/**
 * Describes each configured server, or returns why it cannot be used. Takes at most `timeoutMs`,
 * and writes nothing.
 */
export function inspectNodes(config: RedisConfig, timeoutMs: number): Promise<readonly InspectedServer[]> {
  const { topology } = config
  const isSentinel = 'name' in topology
  const nodes = isSentinel
    ? sentinelOptions(topology, config).subscriptions
    : urlsOf(topology).map((url) => serverOptions(url, config))
  const { within } = createDeadlines(timeoutMs, SYSTEM_CLOCK)
  const once = { connectTimeout: timeoutMs, commandTimeout: timeoutMs, retryStrategy: () => null }
  async function inspect(url: string, i: number): Promise<InspectedServer> {
    const node = acceptOpenness(new Redis({ ...nodes[i], ...once }))
    let reason: Error | undefined
    node.on('error', (error: Error) => (reason = error))
    const ask = async () => {
      await node.connect()
      return await describe(node, config)
    }
    try {
      return { url, found: await within(ask) }
    } catch (thrown) {
      // The emitted error is more specific than "Connection is closed".
      const emitted = reason ?? toError(thrown)
      const isTls = nodes[i]!.tls !== undefined
      const error = isTls ? emitted : await withFirstWord(emitted, nodes[i]!)
      const asked = isSentinel ? new Error(`sentinel: ${error.message}`, { cause: error }) : error
      return {
        url,
        fault: configError(asked)?.message ?? `${error.message}; ${remedyOf(error, isTls, isSentinel)}`,
      }
    } finally {
      node.stream?.on('error', () => {})
      node.disconnect()
    }
  }
  return Promise.all(urlsOf(topology).map(inspect))
}

/** Returns the error that a server without TLS sends before it closes a connection; `error` if it did not, or sent none. */
async function withFirstWord(error: Error, node: Parameters<typeof firstWord>[0]): Promise<Error> {
  const said = CLOSED.test(error.message) ? await firstWord(node) : undefined
  return said === undefined ? error : new Error(said, { cause: error })
}

/** Matches errors of a handshake that a server without TLS does not answer, or not by TLS. */
const WITHOUT_TLS = /ETIMEDOUT|No answer within|wrong version number|packet length too long/
const REFUSED = /ECONNREFUSED|ENOENT/
const CLOSED = /ECONNRESET|EPIPE|Connection is closed|isn't writeable|socket disconnected/

/** Returns what to do about a server that does not answer as it should. */
function remedyOf({ message }: Error, isTls: boolean, isSentinel: boolean): string {
  const start = `start ${isSentinel ? 'sentinel' : 'Redis'} there, or correct store.redis`
  if (/max number of clients/.test(message)) return 'raise its maxclients, or end other clients'
  if (/protected mode/.test(message)) return 'set a password there, and the same as store.redis.password'
  if (isTls && CLOSED.test(message))
    return `${start}; it closes the connection: write redis:// if it has no TLS at this port, or raise its maxclients`
  if (isTls && WITHOUT_TLS.test(message)) return `${start}; write redis:// if it has no TLS at this port`
  if (!isTls && CLOSED.test(message))
    return `${start}; it closes the connection: write rediss:// if it expects TLS`
  return !isSentinel && REFUSED.test(message)
    ? `${start}; for a single gateway, "store: memory" needs no Redis`
    : start
}

/** A range of slots as a node of a cluster reports it, with the address of its master. */
type Slots = readonly [start: number, end: number, master: readonly [host: string | null]]

/** Rejects if a node of a cluster announces no address, so that the gateway could not reach the masters. */
async function assertAddresses(node: Redis): Promise<void> {
  const slots = (await node.call('CLUSTER', 'SLOTS')) as readonly Slots[]
  if (slots.some(([, , [host]]) => host === null || host === '' || host === '?'))
    throw new StoreConfigError(
      'the nodes of the cluster announce no addresses; set cluster-preferred-endpoint-type to ip or hostname there.',
    )
}

async function describe(node: Redis, { topology }: RedisConfig): Promise<string> {
  if ('name' in topology) {
    const master = await node.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', topology.name)
    if (!Array.isArray(master)) throw new Error('No such master with that name')
    return `knows the master "${topology.name}" at ${master.join(':')}`
  }
  if ('cluster' in topology) await assertAddresses(node)
  const info = await node.info('server')
  const fault = versionFault(info)
  if (fault !== undefined) throw new Error(fault)
  return `is ${describeServer(info)}`
}
