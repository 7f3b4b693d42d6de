import { z } from 'zod'
import { isLoopback } from '../downstream/addresses.ts'
import type { Tls as ListenTls } from '../downstream/server.ts'
import type { ClientLimits, LimitedRoute } from '../limit/limit.ts'
import type { RedisCredentials, RedisTopology } from '../limit/redis/options.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { bindHost } from './sections/addresses.ts'
import { clients, type IssuerSettings, par, tokens } from './sections/identity.ts'
import { limits, parameters } from './sections/limits.ts'
import { listen } from './sections/listen.ts'
import { routes, upstreams } from './sections/routes.ts'
import { type SharedStoreSettings, store } from './sections/store.ts'
import { tracing } from './sections/tracing.ts'
import { choice, duration, int, port, section, stringThat } from './sections/values.ts'
import type { LocatedIssue } from './yaml/issue.ts'

const admin = section({
  host: bindHost.default('127.0.0.1').describe('The address of the admin listener.'),
  port: port.prefault(9090).describe('The port of the admin listener; 0 takes a free one.'),
  token: stringThat(
    (token) => /^[A-Za-z0-9._~+/-]{16,}=*$/.test(token),
    'a token of 16 characters or more, letters, digits and - . _ ~ + / =',
  )
    .optional()
    .describe(
      'The bearer token for the console and for reading and resetting limits; required off loopback.',
    ),
})
  .transform(({ token, ...rest }) => ({ ...rest, token, onLoopback: isLoopback(rest.host) }))
  .describe(
    'The operators’ listener: the console, health, readiness, metrics and limits. Keep callers away from it.',
  )

const headers = section({
  draft: choice(['none', 'draft-10'])
    .default('none')
    .describe('draft-10 adds RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).'),
}).describe('Rate-limit header fields of responses, beside X-RateLimit-*.')

const log = section({
  level: choice(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('The lowest level that is logged, with all above it; silent logs nothing.'),
  format: choice(['json', 'pretty'])
    .optional()
    .describe('json is one object per line, pretty is for people and the default on a terminal.'),
  refusals: choice(['all', 'sampled'])
    .default('all')
    .describe(
      'all logs every request. sampled logs, of calls refused from memory, at most one a second for each key of a limit; its omitted counts the others.',
    ),
}).describe('The log on standard output.')

const failures = section({
  limit: int(1, 1000).describe('Most failures of one address in any window.'),
  window: duration('1s', '1h').describe('The length of the window, wherever it starts.'),
})
  .transform(({ limit, window }) => ({ limit, windowMs: window }))
  .describe(
    'Most failed authentications and unmatched requests of one address; beyond, 429 without authenticating. Counted per process; not limited by default.',
  )

/** The shape of the file: its types, defaults, descriptions and bounds. */
export const settings = section({
  listen: listen.prefault({}),
  admin: admin.prefault({}),
  drainTimeout: duration('0s', '1h')
    .prefault('10s')
    .describe('How long requests may take to finish after SIGTERM; new ones are taken for a quarter of it.'),
  log: log.prefault({}),
  store,
  upstreams,
  tokens: tokens.optional(),
  par: par.optional(),
  clients: clients.default([]),
  limits: limits.prefault({}),
  parameters: parameters.default({}),
  headers: headers.prefault({}),
  failures: failures.optional(),
  tracing: tracing.optional(),
  routes,
}).transform(({ drainTimeout, ...rest }) => ({ ...rest, drainTimeoutMs: drainTimeout }))

/** The file as read, with defaults; durations in milliseconds, sizes in bytes. */
export type Settings = z.output<typeof settings>

/** The JSON Schema of the file, for editors: what `settings` takes, and `${NAME}` in place of any value. */
export function jsonSchema(): z.core.JSONSchema.BaseSchema {
  const { $schema, ...schema } = z.toJSONSchema(settings, {
    io: 'input',
    override: ({ jsonSchema, path }) => {
      if (path.at(-1) !== 'propertyNames') withVariable(jsonSchema)
    },
  })
  return {
    $schema: $schema!,
    $id: 'urn:sluice:config',
    title: 'Sluice configuration',
    ...schema,
    $defs: {
      variable: {
        type: 'string',
        pattern: '\\$\\{',
        description: 'A value of the environment: ${NAME} or ${NAME:-default}.',
      },
    },
  }
}

/** Lets a variable stand where a value is bounded. */
function withVariable(schema: z.core.JSONSchema.BaseSchema): void {
  const { description: _, default: __, ...value } = schema
  if (
    value.type !== 'integer' &&
    value.type !== 'number' &&
    !value.enum &&
    value.const === undefined &&
    !value.pattern
  )
    return
  for (const key of Object.keys(value)) delete schema[key]
  schema.anyOf = [value, { $ref: '#/$defs/variable' }]
}

/** The values that `file:/path` may read from a file; `*` is every item of a list or mapping. */
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
  ['tracing', 'headers', '*'],
]

/** How the bearer tokens of one issuer are verified. `introspection` holds a secret. */
export interface Tokens extends Readonly<Omit<IssuerSettings, 'jwks'>> {
  /** The issuer’s keys: a URL, an absolute path, or undefined for the issuer’s discovery. */
  readonly jwks: { readonly url: string } | { readonly file: string } | undefined
}

/** Where the counters live: in this process, or in Redis, which may hold credentials. */
export type StoreConfig = 'memory' | SharedStore

export interface SharedStore extends Readonly<Omit<SharedStoreSettings, 'redis'>> {
  readonly redis: RedisCredentials & { readonly topology: RedisTopology }
  /** How many processes of this gateway share it; one, unless set. */
  readonly processes?: number
}

/** A client with settings of its own; what is undefined is not checked. Without `issuer` it is the first one’s, and the PAR endpoint’s. */
export interface Client extends Readonly<Omit<Settings['clients'][number], 'limits' | 'jwks' | 'jwksUri'>> {
  /** The id as `foldClientId` returns it. */
  readonly folded: string
  /** How the gateway names it as a caller: in keys, limits, logs and commands. */
  readonly caller: string
  /** Its public keys: a JWK Set, or where it is. */
  readonly jwks: { readonly keys: readonly object[] } | { readonly url: string } | undefined
}

export type Par = NonNullable<Settings['par']>

/** The settings with their files read and their names resolved. Durations are milliseconds, sizes bytes. */
export interface Config extends Readonly<
  Omit<Settings, 'listen' | 'store' | 'upstreams' | 'tokens' | 'clients' | 'routes'>
> {
  /** Hosts are in lower case. */
  readonly listen: Readonly<Omit<Settings['listen'], 'hosts' | 'tls'>> & {
    readonly hosts: readonly string[]
    readonly tls: ListenTls | undefined
  }
  readonly store: StoreConfig
  readonly upstreams: readonly Upstream[]
  /** One for each issuer; none where no route asks for tokens. */
  readonly tokens: readonly Tokens[]
  readonly clients: readonly Client[]
  readonly clientLimits: ClientLimits
  /** In the order of matching. */
  readonly routes: readonly LimitedRoute[]
  /** What is not wrong, but probably not meant either, in the order of the file. */
  readonly warnings: readonly LocatedIssue[]
}
