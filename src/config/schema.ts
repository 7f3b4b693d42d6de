import { z } from 'zod'
import type { ClientLimits, Limit } from '../limit/limit.ts'
import type { RedisCredentials, RedisTopology } from '../limit/redis-options.ts'
import { isLoopback } from '../loopback.ts'
import type { Route } from '../route.ts'
import { bindHost, cidr, issuer, keysLocation, origin, servedHost } from './addresses.ts'
import { clients, limits } from './limit-sections.ts'
import type { Problem } from './problem.ts'
import { type SharedStoreSettings, store } from './store-section.ts'
import { choice, duration, list, name, port, secret, section, size, text, textThat, whole } from './values.ts'
import { must } from './wording.ts'

/** The asymmetric algorithms of JOSE: who verifies with them cannot sign with them. */
const ALGORITHMS = [
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
  'RS256',
  'RS384',
  'RS512',
] as const

const listen = section({
  host: bindHost().default('0.0.0.0').describe('The address that callers connect to.'),
  port: port().default(8080).describe('The port that callers connect to; 0 takes a free one.'),
  trustedProxies: list(cidr(), 0, 'a list of address ranges')
    .default([])
    .describe('The proxies whose X-Forwarded-For is believed. Nobody, unless listed.'),
  hosts: list(servedHost(), 1, 'a list of host names')
    .optional()
    .describe('The hosts served here; the ones that routes name, unless listed.'),
  maxHeaderSize: size('1kB', '1MB').prefault('16kB').describe('Most bytes of a request’s head.'),
  headersTimeout: duration('1s', '1h')
    .prefault('15s')
    .describe('Longest time for a request’s head to arrive.'),
  requestTimeout: duration('1s', '1d')
    .prefault('60s')
    .describe('Longest time for a whole request to arrive.'),
  keepAliveTimeout: duration('1ms', '1d').prefault('75s').describe('How long an idle connection is kept.'),
  maxConnections: whole(1, 1_000_000).default(10_000).describe('Most connections at a time.'),
})
  .transform(({ headersTimeout, requestTimeout, keepAliveTimeout, ...rest }) => ({
    ...rest,
    headersTimeoutMs: headersTimeout,
    requestTimeoutMs: requestTimeout,
    keepAliveTimeoutMs: keepAliveTimeout,
  }))
  .describe('Where callers are served.')

const admin = section({
  host: bindHost().default('127.0.0.1').describe('The address of the admin listener.'),
  port: port().default(9090).describe('The port of the admin listener; 0 takes a free one.'),
  token: secret('a token of 16 characters or more, letters, digits and - . _ ~ + / =', (token) =>
    /^[A-Za-z0-9._~+/-]{16,}=*$/.test(token),
  )
    .optional()
    .describe('What operators send as a bearer token to read and reset limits; needed off loopback.'),
})
  .transform(({ token, ...rest }) => ({ ...rest, token, onLoopback: isLoopback(rest.host) }))
  .describe('Where operators look: health, readiness, metrics and limits.')

const headers = section({
  draft: choice(['none', 'draft-10'])
    .default('none')
    .describe('draft-10 adds RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).'),
}).describe('What answers say of limits beside X-RateLimit-*.')

const log = section({
  level: choice(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('What is logged: this level and the ones above it.'),
  format: choice(['json', 'pretty'])
    .optional()
    .describe(
      'json is one object a line, pretty is for reading; unless set, json on a pipe and pretty on a terminal.',
    ),
}).describe('The log on standard output.')

const upstream = section({
  url: origin().describe('The backend’s address: scheme, host and port.'),
  timeout: duration('1ms', '1d')
    .prefault('30s')
    .describe('Longest wait for the head of an answer, and between the bytes of its body.'),
  connectTimeout: duration('1ms', '1h').prefault('2s').describe('Longest wait for a connection.'),
  maxConnections: whole(1, 100_000).default(256).describe('Most connections to it at a time.'),
})
  .transform(({ url, timeout, connectTimeout, ...rest }) => ({
    origin: url,
    timeoutMs: timeout,
    connectTimeoutMs: connectTimeout,
    ...rest,
  }))
  .describe('A backend.')

const algorithm = z.enum(
  ALGORITHMS,
  must(`one of ${ALGORITHMS.join(', ')}`, (input) => {
    if (typeof input !== 'string') return undefined
    if (/^none$/i.test(input)) return 'must not be "none": anybody could write such a token'
    if (/^HS\d/i.test(input))
      return `must not be ${input}: whoever can verify such a token can also forge one`
    return undefined
  }),
)

const tokens = section({
  issuer: issuer().describe('Who signs the tokens; compared exactly with their `iss`.'),
  audience: z
    .union(
      [text('the audience'), list(text('an audience'), 1, 'a list of audiences')],
      must('the audience of the tokens or a list of some, such as https://api.example.com'),
    )
    .transform((audience) => (typeof audience === 'string' ? [audience] : audience))
    .describe('For whom the tokens are; one of theirs must be one of these.'),
  jwks: keysLocation()
    .optional()
    .describe(
      'The issuer’s keys: a URL, or a file relative to this one. Unless set, found by the issuer’s discovery.',
    ),
  clientClaim: text('the name of a claim')
    .default('client_id')
    .describe('The claim that names the API client; some issuers call it azp.'),
  algorithms: list(algorithm, 1, 'a list of algorithms')
    .default(['PS256', 'ES256', 'EdDSA', 'RS256'])
    .describe('The signature algorithms that are accepted.'),
  leeway: duration('0s', '10m').prefault('5s').describe('How far clocks may differ, on exp and nbf.'),
  realm: textThat((realm) => /^[ !#-[\]-~]+$/.test(realm), 'plain ASCII without quotes and backslashes')
    .optional()
    .describe('The realm in WWW-Authenticate; the issuer’s host, unless set.'),
  type: choice(['any', 'strict'])
    .default('any')
    .describe('strict takes only tokens that say they are access tokens (RFC 9068, at+jwt).'),
})
  .transform(({ leeway, realm, ...rest }) => ({
    ...rest,
    leewayMs: leeway,
    realm: realm ?? new URL(rest.issuer).host,
  }))
  .describe('How a caller proves who it is where a route says bearer.')

const route = section({
  match: text('a pattern such as "POST /sync/:connection"').describe(
    '[METHOD[,METHOD]] [host]/path; ":name" takes one segment, a last "*" the rest.',
  ),
  upstream: text('the name of an upstream').optional().describe('The upstream that answers.'),
  respond: choice(['limits'])
    .optional()
    .describe('In place of an upstream: limits tells callers what they may still do, which costs no call.'),
  authenticate: choice(['none', 'bearer']).describe('What a caller must prove. There is no default.'),
  limits: list(text('the name of a limit'), 0, 'a list of limits')
    .default([])
    .describe('The limits that a call is charged to, all or none; the first one is reported in the headers.'),
  maxBody: size('0B', '100GB').prefault('10MB').describe('Most bytes of a request’s body.'),
  timeout: duration('1ms', '1d').optional().describe('In place of the upstream’s timeout.'),
})
  .transform(({ timeout, ...rest }) => ({ ...rest, timeoutMs: timeout }))
  .describe('What a request gets. The first match wins.')

/** The shape of the file: its types, defaults, descriptions and bounds. */
export const settings = section({
  listen: listen.prefault({}),
  admin: admin.prefault({}),
  drainTimeout: duration('0s', '1h')
    .prefault('10s')
    .describe('How long requests under way may take to end after SIGTERM.'),
  log: log.prefault({}),
  store,
  upstreams: z
    .record(name(), upstream, must('a mapping of names to upstreams'))
    .describe('The backends, by name.'),
  tokens: tokens.optional(),
  clients: clients.default([]),
  limits: limits.default({}),
  headers: headers.prefault({}),
  routes: list(route, 1, 'a list of routes').describe('In order: the first match wins.'),
}).transform(({ drainTimeout, ...rest }) => ({ ...rest, drainTimeoutMs: drainTimeout }))

/** The file as read, with defaults; durations in milliseconds, sizes in bytes. */
export type Settings = z.output<typeof settings>

/** Where the values stand that `file:/path` may read from a file; `*` is every place in a list. */
export const SECRETS: readonly (readonly string[])[] = [
  ['admin', 'token'],
  ['store', 'redis', 'url'],
  ['store', 'redis', 'cluster', '*'],
  ['store', 'redis', 'username'],
  ['store', 'redis', 'password'],
  ['store', 'redis', 'sentinelPassword'],
]

/** A backend and how patiently it is asked. `origin` is scheme, host and port, such as `http://data.internal:4000`. */
export type Upstream = Readonly<z.output<typeof upstream>> & { readonly name: string }

/** How bearer tokens are verified. */
export interface Tokens extends Readonly<Omit<z.output<typeof tokens>, 'jwks'>> {
  /** The issuer’s keys: a URL, an absolute path, or undefined for the issuer’s discovery. */
  readonly jwks: { readonly url: string } | { readonly file: string } | undefined
}

/** Where the counters live: in this process, or in Redis: how it is reached, and what is done while it is not. */
export type StoreConfig = 'memory' | SharedStore

/** Counters in Redis. `redis` may hold credentials. */
export interface SharedStore extends Readonly<Omit<SharedStoreSettings, 'redis'>> {
  readonly redis: RedisCredentials & { readonly topology: RedisTopology }
}

/** A client with settings of its own. */
export interface Client {
  readonly id: string
  readonly name: string | undefined
}

/** What callers meet first. `hosts` are in lower case. */
export interface Listen extends Readonly<Omit<Settings['listen'], 'hosts'>> {
  readonly hosts: readonly string[]
}

/** Everything that the gateway is told, checked and compiled. Durations are milliseconds, sizes bytes. */
export interface Config extends Readonly<Pick<Settings, 'admin' | 'drainTimeoutMs' | 'headers' | 'log'>> {
  readonly listen: Listen
  readonly store: StoreConfig
  readonly upstreams: readonly Upstream[]
  readonly tokens: Tokens | undefined
  readonly clients: readonly Client[]
  readonly limits: readonly Limit[]
  readonly clientLimits: ClientLimits
  /** In the order of matching. */
  readonly routes: readonly Route[]
  /** What is not wrong, but probably not meant either, in the order of the file. */
  readonly warnings: readonly Problem[]
}
