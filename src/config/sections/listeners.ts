import { z } from 'zod'
import { FORWARD_AUTH_PROXIES } from '../../downstream/forward-auth.ts'
import { decodeSegment } from '../../downstream/target.ts'
import type { RedisTopology } from '../../limit/redis/options.ts'
import { type Issue, issueAt, mustBe } from '../yaml/issue.ts'
import { bindHost, certificateFieldName, cidr, pemFile, publicUrl, servedHost } from './texts.ts'
import { serverTls, serverTlsIssues } from './server-tls.ts'
import { atKey, BEFORE_URL, bool, choice, coerced, duration, exclusive } from './values.ts'
import { int, percentage, port, section, separable, size, stringThat, text } from './values.ts'

const listenTls = section({ ...serverTls, requestClientCert: bool.prefault(false) }, serverTlsIssues)

export const listenSection = section(
  {
    host: bindHost.default('0.0.0.0'),
    port: port.prefault(8080),
    tls: listenTls.optional(),
    trustedProxies: separable(cidr, 0, 'a list of address ranges').default([]),
    clientCertificate: certificateFieldName.default('Client-Cert'),
    proxyProtocol: bool.prefault(false),
    publicUrl: publicUrl.optional(),
    hosts: separable(servedHost, 1, 'a list of host names').optional(),
    maxHeaderSize: size('1kB', '1MB').prefault('16kB'),
    headersTimeoutMs: duration('1s', '1h').prefault('15s'),
    requestTimeoutMs: duration('1s', '1d').prefault('60s'),
    keepAliveTimeoutMs: duration('1ms', '1d').prefault('620s'),
    maxConnections: int(1, 1_000_000).prefault(10_000),
    maxConnectionsPerAddress: int(1, 1_000_000).prefault(1000),
  },
  function* ({ proxyProtocol, trustedProxies }) {
    if (proxyProtocol && trustedProxies.length === 0)
      yield atKey('proxyProtocol', 'needs trustedProxies: the addresses of the proxies that send it')
  },
)

export const forwardAuth = section({
  host: bindHost.default('127.0.0.1'),
  port: port.prefault(8090),
  from: choice(FORWARD_AUTH_PROXIES),
})

export const SERVER = 'redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'
const NODE = 'redis://host:port or rediss://host:port'
const SENTINEL = `${NODE}, without user and password, which have settings of their own`

/** Returns true for the URL of a Redis server, which may end in a database number such as `/0`. */
export function checkServer(text: string): boolean | string {
  if (/^(?:unix:\/\/)?\/[^\s?#]+$/.test(text)) return true
  // Without its escape, the character ends the host, and what follows is not a password.
  const [, character] = /^rediss?:\/\/[^/?#]*([/?#]).*@/s.exec(text) ?? []
  if (character !== undefined)
    return `has a "${character}" before "@"; write / as %2F, ? as %3F and # as %23, or the password into "password"`
  if (!/^rediss?:\/\//.test(text) || !URL.canParse(text)) return false
  // `decodeSegment` leaves unchanged what it cannot decode.
  if (text.includes('%') && decodeSegment(text) === text)
    return 'has a "%" that is not a UTF-8 escape; write % as %25, and ÿ as %C3%BF'
  const { hostname, pathname, search, hash } = new URL(text)
  return hostname !== '' && /^(?:\/\d{0,4})?$/.test(pathname + search + hash)
}

/** Checks the URL of a sentinel, or of a node of a Redis Cluster, which has only database 0. */
function checkNode(text: string): boolean | string {
  const found = checkServer(text)
  return typeof found === 'string' ? found : found && /^rediss?:\/\/[^/?#]+\/?$/.test(text)
}

/** Checks a sentinel. Its credentials and those of the master are in other settings. */
const checkSentinel = (text: string): boolean | string => !text.includes('@') && checkNode(text)

export const tlsFiles = {
  ca: pemFile.optional(),
  cert: pemFile.optional(),
  key: pemFile.optional(),
}

export function* certWithoutKey({ cert, key }: { cert?: unknown; key?: unknown }): Generator<Issue> {
  const only = cert === undefined ? 'key' : 'cert'
  if ((cert === undefined) !== (key === undefined))
    yield atKey(only, 'needs the other of "cert" and "key"; write both or neither')
}

const tlsFields = section(
  {
    ...tlsFiles,
    servername: text('the name in the certificate of Redis').optional(),
    rejectUnauthorized: bool.prefault(true),
  },
  certWithoutKey,
)

const TLS = `true, false or a mapping (keys: ${Object.keys(tlsFields.in.shape).join(', ')})`
const tls = z.union(
  [
    coerced(z.literal(true)).transform(() => ({})),
    coerced(z.literal(false)).transform(() => 'none' as const),
    tlsFields,
  ],
  mustBe(TLS),
)

const KINDS = ['url', 'cluster', 'sentinels'] as const
const OF_SENTINELS = ['name', 'sentinelUsername', 'sentinelPassword'] as const
const redis = section(
  {
    url: stringThat(checkServer, SERVER).optional(),
    cluster: separable(
      stringThat(checkNode, NODE),
      1,
      'a list of the URLs of some nodes',
      BEFORE_URL,
    ).optional(),
    sentinels: separable(
      stringThat(checkSentinel, SENTINEL),
      1,
      'a list of sentinel URLs',
      BEFORE_URL,
    ).optional(),
    name: text('the master’s name at the sentinels').optional(),
    sentinelUsername: text('a user of the sentinels').optional(),
    sentinelPassword: text('the password of the sentinels').optional(),
    username: text('a user of Redis').optional(),
    password: text('the password of that user').optional(),
    tls: tls.optional(),
  },
  function* (redis) {
    const { url, cluster, sentinels, name, tls } = redis
    const kind = KINDS.find((kind) => redis[kind] !== undefined)
    if (kind === undefined) yield issueAt([], 'must have url, cluster or sentinels')
    yield* exclusive(redis, kind === 'sentinels' ? KINDS : [...KINDS, ...OF_SENTINELS])
    if (kind === 'sentinels' && name === undefined)
      yield issueAt(['name'], 'is missing; write the master’s name at the sentinels')
    if (tls !== undefined && url !== undefined && !url.startsWith('redis'))
      yield atKey('tls', 'does not apply to a socket file; remove it')
    if (tls === 'none' && (cluster?.[0] ?? url)?.startsWith('rediss:'))
      yield issueAt(['tls'], 'contradicts rediss://; remove it, or write redis://')
    // All nodes are reached with the same settings.
    const nodes = (cluster ?? sentinels ?? []).map((node) => {
      const { protocol, username, password } = new URL(node)
      return JSON.stringify([protocol, username, password])
    })
    const i = nodes.findIndex((node) => node !== nodes[0])
    if (i !== -1)
      yield issueAt([kind!, i], 'differs from the first in scheme, user or password; write the same for all')
  },
).transform((redis) => {
  const { url, cluster, sentinels, name, sentinelUsername, sentinelPassword, tls, ...rest } = redis
  const isPlain = tls === 'none'
  let topology: RedisTopology = { url: url! }
  if (cluster) topology = { cluster }
  if (sentinels) {
    topology = { sentinels, name: name!, sentinelUsername, sentinelPassword }
    if (isPlain) topology = { ...topology, isMasterPlain: true }
  }
  return { topology, ...rest, ...(tls && !isPlain && { tls }) }
})
const isPrefix = (prefix: string): boolean => /^[A-Za-z0-9._:-]{1,64}$/.test(prefix)

const sharedStore = section({
  redis,
  prefix: stringThat(isPrefix, 'letters, digits and . _ : - (64 at most)').default('sluice'),
  timeoutMs: duration('1ms', '1m').prefault('100ms'),
  onOutage: choice(['local', 'allow', 'deny']).default('local'),
  instances: int(1, 100_000).optional(),
  part: percentage().optional(),
  overridesFile: text('the path of a file that the gateway may write').optional(),
  overrides: choice(['optional', 'required']).default('optional'),
})

export const store = z.union(
  [z.literal('memory'), sharedStore],
  mustBe('"memory" or a mapping with "redis", such as { redis: { url: "redis://host:6379" } }'),
)
