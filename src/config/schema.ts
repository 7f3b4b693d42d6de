import { z } from 'zod'
import type { ClientLimits, Limit, LimitedRoute } from '../limit/limit.ts'
import type { RedisCredentials, RedisTopology } from '../limit/redis/options.ts'
import { isLoopback } from './loopback.ts'
import { bindHost } from './sections/addresses.ts'
import { clients } from './sections/client.ts'
import { limits } from './sections/limits.ts'
import { listen } from './sections/listen.ts'
import { par } from './sections/par.ts'
import { parameters } from './sections/parameters.ts'
import type { Problem } from './yaml/problem.ts'
import { type SharedStoreSettings, store } from './sections/store.ts'
import { type IssuerSettings, tokens } from './sections/tokens.ts'
import { upstream, type UpstreamSettings } from './sections/upstream.ts'
import {
  choice,
  duration,
  list,
  name,
  port,
  secret,
  section,
  size,
  text,
  textThat,
  whole,
} from './sections/values.ts'
import { mustSecretly } from './yaml/wording.ts'

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

const failures = section({
  limit: whole(1, 1000).describe('Most failures of one address in any window.'),
  window: duration('1s', '1h').describe('The length of the window, wherever it starts.'),
})
  .transform(({ limit, window }) => ({ limit, windowMs: window }))
  .describe(
    'Failed authentications and unmatched requests of one address, in this process; beyond: 429 before any key is tried.',
  )

function scope() {
  return textThat(
    (word) => /^[!#-[\]-~]+$/.test(word),
    'a scope such as payments:read',
    (word) => (/\S\s+\S/.test(word) ? 'holds a space; write each scope apart, as [read, write]' : undefined),
  )
}

const route = section({
  match: text('a pattern such as "POST /sync/:connection"').describe(
    '[METHOD[,METHOD]] [host]/path; ":name" takes one segment, a last "*" the rest.',
  ),
  upstream: text('the name of an upstream').optional().describe('The upstream that answers.'),
  respond: choice(['limits'])
    .optional()
    .describe('In place of an upstream: limits tells callers what they may still do, which costs no call.'),
  authenticate: choice(['none', 'bearer', 'par']).describe(
    'What a caller must prove; par is for the PAR endpoint, whose rules the gateway enforces. There is no default.',
  ),
  scope: list(scope(), 1, 'a list of scopes')
    .default([])
    .describe('The scopes that a token must have, all of them; needs bearer.'),
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
    .record(name(), upstream, mustSecretly('a mapping of names to upstreams'))
    .describe('The backends, by name.'),
  tokens: tokens.optional(),
  par: par.optional(),
  clients: clients.default([]),
  limits: limits.default({}),
  parameters: parameters.default({}),
  headers: headers.prefault({}),
  failures: failures.optional(),
  routes: list(route, 1, 'a list of routes').describe('In order: the first match wins.'),
}).transform(({ drainTimeout, ...rest }) => ({ ...rest, drainTimeoutMs: drainTimeout }))

/** The file as read, with defaults; durations in milliseconds, sizes in bytes. */
export type Settings = z.output<typeof settings>

/** Where the values stand that `file:/path` may read from a file; `*` is every place in a list. */
export const SECRETS: readonly (readonly string[])[] = [
  ['admin', 'token'],
  ['tokens', 'introspection', 'clientSecret'],
  ['tokens', '*', 'introspection', 'clientSecret'],
  ['store', 'redis', 'url'],
  ['store', 'redis', 'cluster', '*'],
  ['store', 'redis', 'username'],
  ['store', 'redis', 'password'],
  ['store', 'redis', 'sentinelUsername'],
  ['store', 'redis', 'sentinelPassword'],
]

/** A backend and how patiently it is asked. `origins` are scheme, host and port, such as `http://data.internal:4000`. */
export interface Upstream extends Readonly<Omit<UpstreamSettings, 'tls'>> {
  readonly name: string
  readonly tls: UpstreamTls | undefined
}

/** TLS to a backend: PEM texts that were read and fit each other, and the name that its certificate must bear. `key` is a secret. */
export interface UpstreamTls {
  readonly ca: string | undefined
  readonly servername: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/** How the bearer tokens of one issuer are verified. `introspection` holds a secret. */
export interface Tokens extends Readonly<Omit<IssuerSettings, 'jwks'>> {
  /** The issuer’s keys: a URL, an absolute path, or undefined for the issuer’s discovery. */
  readonly jwks: { readonly url: string } | { readonly file: string } | undefined
}

/** Where the counters live: in this process, or in Redis: how it is reached, and what is done while it is not. */
export type StoreConfig = 'memory' | SharedStore

/** Counters in Redis. `redis` may hold credentials. */
export interface SharedStore extends Readonly<Omit<SharedStoreSettings, 'redis'>> {
  readonly redis: RedisCredentials & { readonly topology: RedisTopology }
  /** How many processes of this gateway share it; one, unless set. */
  readonly processes?: number
}

/** A client with settings of its own; what is undefined is not checked. */
export interface Client {
  readonly id: string
  /** The id as `plainId` has it. */
  readonly plain: string
  /** Undefined where the file names none: then it is the first issuer’s, and the PAR endpoint’s. */
  readonly issuer: string | undefined
  /** How the gateway names it as a caller: in keys, limits, logs and commands. */
  readonly caller: string
  readonly name: string | undefined
  /** `none`: need not sign its request objects. */
  readonly requestObjectSigningAlg: Settings['clients'][number]['requestObjectSigningAlg']
  readonly authentication: Settings['clients'][number]['authentication']
  /** Its public keys: a JWK Set, or where it is. */
  readonly jwks: { readonly keys: readonly object[] } | { readonly url: string } | undefined
}

/** What is enforced at the PAR endpoint. */
export interface Par extends Readonly<Omit<z.output<typeof par>, 'audiences'>> {
  /** What the audience of assertions may be beside the issuer. */
  readonly audiences: readonly string[]
}

/** TLS of the callers’ listener: PEM texts that were read and fit each other. */
export interface ListenTls {
  readonly cert: string
  readonly key: string
  readonly clientCa: string | undefined
  readonly requestClientCert: boolean
}

/** What callers meet first. `hosts` are in lower case. */
export interface Listen extends Readonly<Omit<Settings['listen'], 'hosts' | 'tls'>> {
  readonly hosts: readonly string[]
  readonly tls: ListenTls | undefined
}

/** Everything that the gateway is told, checked and compiled. Durations are milliseconds, sizes bytes. */
export interface Config extends Readonly<
  Pick<Settings, 'admin' | 'drainTimeoutMs' | 'failures' | 'headers' | 'log' | 'parameters'>
> {
  readonly listen: Listen
  readonly store: StoreConfig
  readonly upstreams: readonly Upstream[]
  /** One for each issuer; none where no route asks for tokens. */
  readonly tokens: readonly Tokens[]
  readonly par: Par | undefined
  readonly clients: readonly Client[]
  readonly limits: readonly Limit[]
  readonly clientLimits: ClientLimits
  /** In the order of matching. */
  readonly routes: readonly LimitedRoute[]
  /** What is not wrong, but probably not meant either, in the order of the file. */
  readonly warnings: readonly Problem[]
}
