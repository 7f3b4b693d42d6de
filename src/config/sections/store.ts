import { z } from 'zod'
import type { RedisTopology } from '../../limit/redis/options.ts'
import type { Mistake } from '../yaml/problem.ts'
import { must } from '../yaml/wording.ts'
import { pemFile } from './addresses.ts'
import { checking, choice, coerced, duration, flag, list, section, text, textThat, whole } from './values.ts'

const SERVER = 'redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'
const NODE = 'redis://host:port or rediss://host:port'

/** A server: `redis://`, `rediss://` or a socket file. */
const redisUrl = () => textThat(judgeServer, SERVER)
/** A node of a Redis Cluster, which has database 0 alone. */
const clusterUrl = () => textThat(judgeNode, NODE)
/** A sentinel, without credentials: its own are another setting, and so are those of the master. */
const sentinelUrl = () =>
  textThat((text) => {
    const found = judgeNode(text)
    if (found !== true || !text.includes('@')) return found
    return 'must hold no credentials; write them as username, password, sentinelUsername and sentinelPassword'
  }, NODE)

function judgeNode(text: string): boolean | string {
  if (!/^rediss?:\/\//.test(text)) return false
  const isLonger = URL.canParse(text) && new URL(text).pathname.length > 1
  return isLonger ? `must end after the port; write ${NODE}` : judgeServer(text)
}

function judgeServer(text: string): boolean | string {
  if (/^(?:unix:\/\/)?\/[^\s?#]+$/.test(text)) return true
  if (!/^rediss?:\/\//.test(text) || !URL.canParse(text)) return `must be ${SERVER}`
  const { hostname, search, hash, pathname } = new URL(text)
  if (hostname === '') return 'names no host; write redis://host:6379'
  if (search !== '' || hash !== '') return 'must have nothing after the database number'
  return /^(?:\/\d{0,4})?$/.test(pathname) || 'must end with the number of a database, such as /0, or without'
}

/** The PEM files of TLS to a server. */
export function tlsFiles(we: string) {
  return {
    ca: pemFile().optional().describe('The authorities that are trusted; those of Node.js, unless set.'),
    cert: pemFile().optional().describe(`The certificate that ${we} shows.`),
    key: pemFile().optional().describe('The private key of that certificate.'),
  }
}

/** A certificate without its key, or a key without its certificate. */
export function* halfOf(tls: { readonly cert?: unknown; readonly key?: unknown }): Generator<Mistake> {
  if ((tls.cert === undefined) === (tls.key === undefined)) return
  const [one, other] = tls.key === undefined ? ['cert', 'key'] : ['key', 'cert']
  yield { path: [one], message: `is of no use without "${other}"; write both or neither`, key: true }
}

const tls = z
  .union(
    [
      coerced(z.literal(true)),
      section({
        ...tlsFiles('this gateway'),
        servername: text('the name in the certificate of Redis')
          .optional()
          .describe('The name that the certificate of Redis must bear; the host’s, unless set.'),
        rejectUnauthorized: flag().prefault(true).describe('false takes the certificate of any impostor.'),
      }).superRefine(checking(halfOf)),
    ],
    must('true or a mapping with keys of ca, cert, key, servername, rejectUnauthorized'),
  )
  .describe('TLS to Redis, with files relative to this one; rediss:// alone switches it on too.')

const servers = section({
  url: redisUrl().optional().describe('One server: redis://, rediss:// or a socket file; may be file:/path.'),
  cluster: list(clusterUrl(), 1, 'a list of the URLs of some nodes')
    .optional()
    .describe('In place of url: a Redis Cluster, by some of its nodes.'),
  sentinels: list(sentinelUrl(), 1, 'a list of the URLs of the sentinels')
    .optional()
    .describe('In place of url: the master that these sentinels know.'),
  name: text('the name by which the sentinels know the master').optional().describe('The master’s name.'),
  sentinelUsername: text('a user of the sentinels').optional().describe('Goes with sentinelPassword.'),
  sentinelPassword: text('the password of the sentinels').optional().describe('Of the sentinels themselves.'),
  username: text('a user of Redis').optional().describe('In place of the user in the URL.'),
  password: text('the password of that user').optional().describe('In place of the password in the URL.'),
  tls: tls.optional(),
})

/** A Redis with several kinds of addresses or without any, and settings that do not go together. */
function* fitting(redis: z.output<typeof servers>): Generator<Mistake> {
  const { url, cluster, sentinels, sentinelUsername, sentinelPassword } = redis
  const [kind, ...others] = (['url', 'cluster', 'sentinels'] as const).filter((kind) => redis[kind])
  if (kind === undefined) yield { path: [], message: 'names no server; write url, cluster or sentinels' }
  for (const other of others)
    yield { path: [other], message: `stands beside "${kind}"; take one of the two out`, key: true }
  if (kind === 'sentinels') {
    if (redis.name === undefined) {
      const message = 'is missing; write the name by which the sentinels know the master'
      yield { path: ['name'], message }
    }
    if (sentinelUsername !== undefined && sentinelPassword === undefined) {
      const message = 'is of no use without "sentinelPassword"; write both or neither'
      yield { path: ['sentinelUsername'], message, key: true }
    }
  } else if (kind !== undefined) {
    for (const key of ['name', 'sentinelUsername', 'sentinelPassword'] as const)
      if (redis[key] !== undefined)
        yield { path: [key], message: 'goes with "sentinels" alone; take it out', key: true }
  }
  if (redis.tls !== undefined && url !== undefined && !url.startsWith('redis'))
    yield { path: ['tls'], message: 'has no meaning on a socket file; take it out', key: true }
  // All nodes are reached with the same settings.
  const nodes = (cluster ?? sentinels ?? []).map((node) => {
    const { protocol, username, password } = new URL(node)
    return JSON.stringify([protocol, username, password])
  })
  const i = nodes.findIndex((node) => node !== nodes[0])
  const message = 'differs from the first one in scheme, user or password; write all alike'
  if (i !== -1) yield { path: [kind!, i], message }
}

const sharedStore = section({
  redis: servers
    .superRefine(checking(fitting))
    .transform(({ url, cluster, sentinels, name, sentinelUsername, sentinelPassword, ...rest }) => {
      // Exactly one of the three is there.
      const topology: RedisTopology =
        cluster !== undefined
          ? { cluster }
          : sentinels !== undefined
            ? { sentinels, name: name!, sentinelUsername, sentinelPassword }
            : { url: url! }
      return { topology, ...rest }
    })
    .describe('The Redis that every instance of the gateway shares.'),
  prefix: textThat(
    (prefix) => /^[A-Za-z0-9._:-]{1,64}$/.test(prefix),
    'letters, digits and . _ : - (64 at most)',
  )
    .default('sluice')
    .describe('What every key in Redis starts with.'),
  timeout: duration('1ms', '1m').prefault('100ms').describe('Longest that one decision waits for Redis.'),
  onOutage: choice(['local', 'allow', 'deny'])
    .default('local')
    .describe('While Redis is out of reach: count in this process, let every call pass, or refuse with 503.'),
  instances: whole(1, 100_000)
    .optional()
    .describe('How many gateways share the limits under onOutage: local; counted in Redis, unless set.'),
}).transform(({ timeout, ...rest }) => ({ ...rest, timeoutMs: timeout }))

/** Where the counters live. */
export const store = z
  .union([z.literal('memory'), sharedStore], must('"memory" or a mapping with "redis"'))
  .describe('Where the counters live: "memory" counts in this process alone.')

/** A shared store as the file says it, with files not yet read. */
export type SharedStoreSettings = z.output<typeof sharedStore>
