import { z } from 'zod'
import type { RedisTopology } from '../../limit/redis/options.ts'
import { type Issue, mustBe } from '../yaml/issue.ts'
import { pemFile } from './addresses.ts'
import { bool, choice, coerced, crossField, duration, int } from './values.ts'
import { list, section, stringThat, text } from './values.ts'

export const SERVER = 'redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'
const NODE = 'redis://host:port or rediss://host:port'

/** Returns true for the URL of a Redis server, or what is wrong with it. */
export function checkServer(text: string): boolean | string {
  if (/^(?:unix:\/\/)?\/[^\s?#]+$/.test(text)) return true
  if (!/^rediss?:\/\//.test(text) || !URL.canParse(text)) return `must be ${SERVER}`
  const { hostname, search, hash, pathname } = new URL(text)
  if (hostname === '') return 'names no host; write redis://host:6379'
  if (search !== '' || hash !== '') return 'must have nothing after the database number'
  return /^(?:\/\d{0,4})?$/.test(pathname) || 'must end with the number of a database, such as /0, or without'
}

/** Checks a node of a Redis Cluster, which has only database 0, or a sentinel. */
function checkNode(text: string): boolean | string {
  if (!/^rediss?:\/\//.test(text)) return false
  const isLonger = URL.canParse(text) && new URL(text).pathname.length > 1
  return isLonger ? `must end after the port; write ${NODE}` : checkServer(text)
}

/** Checks a sentinel. Its credentials and those of the master are in other settings. */
function checkSentinel(text: string): boolean | string {
  const result = checkNode(text)
  if (result !== true || !text.includes('@')) return result
  return 'must not contain credentials; write username, password, sentinelUsername and sentinelPassword'
}

export const redisUrl = stringThat(checkServer, SERVER)

export const tlsFiles = {
  ca: pemFile.optional().describe('Authorities (CAs) that are trusted; by default those of Node.js.'),
  cert: pemFile.optional().describe('The client certificate that the gateway presents; needs key.'),
  key: pemFile.optional().describe('The private key of that certificate.'),
}

export function* certWithoutKey({ cert, key }: { cert?: unknown; key?: unknown }): Generator<Issue> {
  if ((cert === undefined) === (key === undefined)) return
  const [present, missing] = key === undefined ? ['cert', 'key'] : ['key', 'cert']
  yield { path: [present], message: `has no effect without "${missing}"; write both or neither`, key: true }
}

const tlsSection = section({
  ...tlsFiles,
  servername: text('the name in the certificate of Redis')
    .optional()
    .describe('The name expected in the certificate of Redis; by default the host of the URL.'),
  rejectUnauthorized: bool.prefault(true).describe('false accepts the certificate of any impostor.'),
}).superRefine(crossField(certWithoutKey))

const TLS = `true or a mapping (keys: ${Object.keys(tlsSection.shape).join(', ')})`
const tls = z
  .union([coerced(z.literal(true)), tlsSection], mustBe(TLS))
  .describe('TLS to Redis: true, or PEM files relative to this file; rediss:// switches it on, too.')

const servers = section({
  url: redisUrl
    .optional()
    .describe('One server: redis://, rediss:// (TLS), unix:///path or file:/path of it.'),
  cluster: list(stringThat(checkNode, NODE), 1, 'a list of the URLs of some nodes')
    .optional()
    .describe('Instead of url: the URLs of some nodes of a Redis Cluster; the others are discovered.'),
  sentinels: list(stringThat(checkSentinel, NODE), 1, 'a list of the URLs of the sentinels')
    .optional()
    .describe('Instead of url: the URLs of sentinels, which report the master by its name.'),
  name: text('the master’s name at the sentinels').optional().describe('The master’s name at the sentinels.'),
  sentinelUsername: text('a user of the sentinels')
    .optional()
    .describe('The user at the sentinels, with sentinelPassword; by default their default user.'),
  sentinelPassword: text('the password of the sentinels')
    .optional()
    .describe('The password at the sentinels, not at Redis itself; none by default.'),
  username: text('a user of Redis').optional().describe('Instead of the user in the URL; may be file:/path.'),
  password: text('the password of that user').optional().describe('Instead of the URL’s; may be file:/path.'),
  tls: tls.optional(),
})

function* addressConflicts(redis: z.output<typeof servers>): Generator<Issue> {
  const { url, cluster, sentinels, sentinelUsername, sentinelPassword } = redis
  const [kind, ...others] = (['url', 'cluster', 'sentinels'] as const).filter((kind) => redis[kind])
  if (kind === undefined) yield { path: [], message: 'names no server; write url, cluster or sentinels' }
  for (const other of others)
    yield { path: [other], message: `cannot be combined with "${kind}"; remove one of them`, key: true }
  if (kind === 'sentinels' && redis.name === undefined)
    yield { path: ['name'], message: 'is missing; write the master’s name at the sentinels' }
  const message = 'has no effect without "sentinelPassword"; write both or neither'
  if (kind === 'sentinels' && sentinelUsername !== undefined && sentinelPassword === undefined)
    yield { path: ['sentinelUsername'], message, key: true }
  for (const key of ['name', 'sentinelUsername', 'sentinelPassword'] as const)
    if (kind !== undefined && kind !== 'sentinels' && redis[key] !== undefined)
      yield { path: [key], message: 'applies only to "sentinels"; remove it', key: true }
  if (redis.tls !== undefined && url !== undefined && !url.startsWith('redis'))
    yield { path: ['tls'], message: 'does not apply to a socket file; remove it', key: true }
  // All nodes are reached with the same settings.
  const nodes = (cluster ?? sentinels ?? []).map((node) => {
    const { protocol, username, password } = new URL(node)
    return JSON.stringify([protocol, username, password])
  })
  const i = nodes.findIndex((node) => node !== nodes[0])
  const differs = 'differs from the first in scheme, user or password; write the same for all'
  if (i !== -1) yield { path: [kind!, i], message: differs }
}

const redis = servers.superRefine(crossField(addressConflicts)).transform((redis) => {
  const { url, cluster, sentinels, name, sentinelUsername, sentinelPassword, ...rest } = redis
  let topology: RedisTopology = { url: url! }
  if (cluster !== undefined) topology = { cluster }
  if (sentinels !== undefined) topology = { sentinels, name: name!, sentinelUsername, sentinelPassword }
  return { topology, ...rest }
})
const isPrefix = (prefix: string): boolean => /^[A-Za-z0-9._:-]{1,64}$/.test(prefix)

const sharedStore = section({
  redis: redis.describe('The Redis that all gateways share.'),
  prefix: stringThat(isPrefix, 'letters, digits and . _ : - (64 at most)')
    .default('sluice')
    .describe('The beginning of every key in Redis; gateways share their limits if it is the same.'),
  timeout: duration('1ms', '1m').prefault('100ms').describe('Maximum wait for Redis; then onOutage applies.'),
  onOutage: choice(['local', 'allow', 'deny'])
    .default('local')
    .describe('While Redis is down: local counts per process, allow admits every call, deny answers 503.'),
  instances: int(1, 100_000)
    .optional()
    .describe('Gateways among which onOutage: local divides the limits; by default counted in Redis.'),
}).transform(({ timeout, ...rest }) => ({ ...rest, timeoutMs: timeout }))

export const store = z
  .union([z.literal('memory'), sharedStore], mustBe('"memory" or a mapping with "redis"'))
  .describe('Where the counters are; "memory" counts in this process only.')

/** The settings of a shared store, whose files are not read yet. */
export type SharedStoreSettings = z.output<typeof sharedStore>
