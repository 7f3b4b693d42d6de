import { z } from 'zod'
import { isLoopback } from '../../downstream/peers.ts'
import { FORWARD_AUTH_PROXIES } from '../../downstream/forward-auth.ts'
import type { RedisTopology } from '../../limit/redis/options.ts'
import { type Issue, mustBe } from '../yaml/issue.ts'
import { bindHost, cidr, pemFile, servedHost } from './texts.ts'
import { atKey, bool, choice, coerced, crossField, duration, exclusive } from './values.ts'
import { int, list, port, section, size, stringThat, text } from './values.ts'

const listenTls = section({
  cert: pemFile.describe('The gateway’s certificate, followed by its intermediate certificates.'),
  key: pemFile.describe('The private key of that certificate.'),
  clientCa: pemFile.optional().describe('CAs of the client certificates that callers need to connect.'),
  requestClientCert: bool
    .exactOptional()
    .describe('true requests client certificates without requiring them.'),
})
  .refine(({ clientCa, requestClientCert }) => clientCa === undefined || requestClientCert !== false, {
    path: ['requestClientCert'],
    error: 'contradicts "clientCa", which requests a certificate; remove one of them',
  })
  .transform((files) => ({ requestClientCert: false, ...files }))
  .describe('HTTPS, with PEM files relative to this one; plain HTTP, unless set.')

export const listen = section({
  host: bindHost.default('0.0.0.0').describe('The address that callers connect to.'),
  port: port.prefault(8080).describe('The port that callers connect to; 0 takes a free one.'),
  tls: listenTls.optional(),
  trustedProxies: list(cidr, 0, 'a list of address ranges')
    .default([])
    .describe('Address ranges of proxies whose X-Forwarded-* and Client-Cert are trusted; none by default.'),
  hosts: list(servedHost, 1, 'a list of host names')
    .optional()
    .describe('Hosts that routes without a host serve, and of DPoP proofs; others get 400. Default any.'),
  maxHeaderSize: size('1kB', '1MB').prefault('16kB').describe('Largest head of a request; beyond, 431.'),
  headersTimeoutMs: duration('1s', '1h')
    .prefault('15s')
    .describe('For a request’s head to arrive; then 408.'),
  requestTimeoutMs: duration('1s', '1d').prefault('60s').describe('For a whole request to arrive; then 408.'),
  keepAliveTimeoutMs: duration('1ms', '1d').prefault('75s').describe('How long an idle connection is kept.'),
  maxConnections: int(1, 1_000_000).prefault(10_000).describe('Maximum connections; more are closed.'),
  maxConnectionsPerAddress: int(1, 1_000_000)
    .prefault(1000)
    .describe('Maximum connections from one address (IPv6: its /64); not for trustedProxies.'),
})
  .superRefine(
    crossField(function* ({ headersTimeoutMs, requestTimeoutMs }) {
      const message = `must be at most requestTimeout (${requestTimeoutMs / 1000}s), which includes it`
      if (headersTimeoutMs > requestTimeoutMs) yield { path: ['headersTimeout'], message }
    }),
  )
  .describe('The callers’ listener.')

const isToken = (token: string): boolean => /^[A-Za-z0-9._~+/-]{16,}=*$/.test(token)

export const forwardAuth = section({
  host: bindHost.default('127.0.0.1').describe('The address that the proxy asks.'),
  port: port.prefault(8090).describe('The port that the proxy asks; 0 takes a free one.'),
  from: choice(FORWARD_AUTH_PROXIES).describe('The proxy that asks, in its own fields.'),
}).describe('A listener that answers a proxy whether a request may pass. It trusts every peer.')

export const admin = section({
  host: bindHost.default('127.0.0.1').describe('The address of the admin listener.'),
  port: port.prefault(9090).describe('The port of the admin listener; 0 takes a free one.'),
  token: stringThat(isToken, 'a token of 16 characters or more, letters, digits and - . _ ~ + / =')
    .optional()
    .describe('Bearer token for the console’s data and for limits; required off loopback.'),
})
  .transform((settings) => ({ token: undefined, ...settings, onLoopback: isLoopback(settings.host) }))
  .describe('The operators’ listener: the console, health, metrics and limits. Keep callers away from it.')

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
  const [present, missing] = key === undefined ? (['cert', 'key'] as const) : (['key', 'cert'] as const)
  yield atKey(present, `has no effect without "${missing}"; write both or neither`)
}

const tlsFields = section({
  ...tlsFiles,
  servername: text('the name in the certificate of Redis')
    .optional()
    .describe('The name expected in the certificate of Redis; by default the host of the URL.'),
  rejectUnauthorized: bool.prefault(true).describe('false accepts the certificate of any impostor.'),
}).superRefine(crossField(certWithoutKey))

const TLS = `true or a mapping (keys: ${Object.keys(tlsFields.in.shape).join(', ')})`
const tls = z
  .union([coerced(z.literal(true)).transform(() => ({})), tlsFields], mustBe(TLS))
  .describe('TLS to Redis: true, or PEM files relative to this file; rediss:// switches it on, too.')

const KINDS = ['url', 'cluster', 'sentinels'] as const
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
  const { url, cluster, sentinels, name, sentinelUsername, sentinelPassword, tls } = redis
  const kind = KINDS.find((kind) => redis[kind] !== undefined)
  if (kind === undefined) yield { path: [], message: 'names no server; write url, cluster or sentinels' }
  yield* exclusive(redis, KINDS)
  if (kind === 'sentinels' && name === undefined)
    yield { path: ['name'], message: 'is missing; write the master’s name at the sentinels' }
  if (kind === 'sentinels' && sentinelUsername !== undefined && sentinelPassword === undefined)
    yield atKey('sentinelUsername', 'has no effect without "sentinelPassword"; write both or neither')
  for (const key of ['name', 'sentinelUsername', 'sentinelPassword'] as const)
    if (kind !== undefined && kind !== 'sentinels' && redis[key] !== undefined)
      yield atKey(key, 'applies only to "sentinels"; remove it')
  if (tls !== undefined && url !== undefined && !url.startsWith('redis'))
    yield atKey('tls', 'does not apply to a socket file; remove it')
  // All nodes are reached with the same settings.
  const nodes = (cluster ?? sentinels ?? []).map((node) => {
    const { protocol, username, password } = new URL(node)
    return JSON.stringify([protocol, username, password])
  })
  const i = nodes.findIndex((node) => node !== nodes[0])
  const message = 'differs from the first in scheme, user or password; write the same for all'
  if (i !== -1) yield { path: [kind!, i], message }
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
  timeoutMs: duration('1ms', '1m')
    .prefault('100ms')
    .describe('Maximum wait for Redis; then onOutage applies.'),
  onOutage: choice(['local', 'allow', 'deny'])
    .default('local')
    .describe('While Redis is down: local counts per process, allow admits every call, deny answers 503.'),
  instances: int(1, 100_000)
    .optional()
    .describe('Gateways among which onOutage: local divides the limits; by default counted in Redis.'),
})

export const store = z
  .union([z.literal('memory'), sharedStore], mustBe('"memory" or a mapping with "redis"'))
  .describe('Where the counters are; "memory" counts in this process only.')
