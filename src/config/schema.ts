import { z } from 'zod'
import type { ErrorFormat } from '../downstream/reply.ts'
import type { Tls as ListenTls } from '../downstream/server.ts'
import type { ClientLimits, LimitedRoute } from '../limit/limit.ts'
import type { RedisCredentials, RedisTopology } from '../limit/redis/options.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { fetchedUrl } from './sections/addresses.ts'
import { clients, type IssuerSettings, par, tokens } from './sections/identity.ts'
import { headerFields } from './sections/fields.ts'
import { failures, headers, limits } from './sections/limits.ts'
import { admin, forwardAuth, listen } from './sections/listeners.ts'
import { parameters } from './sections/parameters.ts'
import { routes, upstreams } from './sections/routes.ts'
import { type SharedStoreSettings, store } from './sections/store.ts'
import { choice, coerced, duration, section } from './sections/values.ts'
import { type LocatedIssue, mustBe } from './yaml/issue.ts'

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
      'sampled logs calls refused from memory once a second per limit’s key; omitted counts the others.',
    ),
}).describe('The log on standard output.')

const ratio = mustBe('a number from 0 to 1, such as 0.01')
const RECEIVER = 'the URL of an OTLP/HTTP receiver, such as http://otel-collector:4318/v1/traces'

const tracing = section({
  endpoint: fetchedUrl(RECEIVER).describe('The whole URL that spans are posted to, by OTLP/HTTP in JSON.'),
  sampleRatio: coerced(z.number(ratio).min(0, ratio).max(1, ratio))
    .prefault(0.01)
    .describe(
      'The fraction of requests traced; the sampled flag of a trusted proxy’s traceparent overrides it.',
    ),
  headers: headerFields
    .default({})
    .describe('Header fields to send, such as authorization; file:/path reads a value from a file.'),
}).describe('Traces of requests by OpenTelemetry; none by default. A change needs a restart.')

/** The schema of the file: its types, defaults, descriptions and bounds. */
export const settings = section({
  listen: listen.prefault({}),
  admin: admin.prefault({}),
  forwardAuth: forwardAuth.optional(),
  drainTimeout: duration('0s', '1h')
    .prefault('10s')
    .describe('Time for requests to finish after SIGTERM; new ones are accepted for a quarter of it.'),
  log: log.prefault({}),
  store,
  upstreams: upstreams.default([]),
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

/** Returns the JSON Schema of the file, for editors. It also accepts `${NAME}` for any value. */
export function jsonSchema(): z.core.JSONSchema.BaseSchema {
  const { $schema, ...schema } = z.toJSONSchema(settings, {
    io: 'input',
    override: ({ jsonSchema, path }) => {
      if (path.at(-1) !== 'propertyNames') allowVariable(jsonSchema)
    },
  })
  const description = 'A value of the environment: ${NAME} or ${NAME:-default}.'
  const $defs = { variable: { type: 'string', pattern: '\\$\\{', description } } as const
  return { $schema: $schema!, $id: 'urn:sluice:config', title: 'Sluice configuration', ...schema, $defs }
}

/** Makes a bounded value accept a variable, too. */
function allowVariable(schema: z.core.JSONSchema.BaseSchema): void {
  const { description: _, default: __, ...value } = schema
  const isNumber = value.type === 'integer' || value.type === 'number'
  if (!isNumber && !value.enum && value.const === undefined && !value.pattern) return
  for (const key of Object.keys(value)) delete schema[key]
  schema.anyOf = [value, { $ref: '#/$defs/variable' }]
}

const REDIS_SECRETS = ['url', 'cluster.*', 'username', 'password', 'sentinelUsername', 'sentinelPassword']
/** Paths of the values that `file:/path` may read from a file; `*` is each item of a list or mapping. */
export const SECRETS = [
  'admin.token',
  'tokens.introspection.clientSecret',
  'tokens.*.introspection.clientSecret',
  ...REDIS_SECRETS.map((key) => `store.redis.${key}`),
  'tracing.headers.*',
].map((path) => path.split('.'))

/** Settings for the verification of one issuer's tokens. `introspection` contains a secret. */
export interface Tokens extends Readonly<Omit<IssuerSettings, 'jwks'>> {
  /** The issuer’s keys: a URL, an absolute path, or undefined for the issuer’s discovery. */
  readonly jwks: { readonly url: string } | { readonly file: string } | undefined
}

/** The location of the counters: this process, or Redis, whose settings may contain credentials. */
export type StoreConfig = 'memory' | SharedStore

export interface SharedStore extends Readonly<Omit<SharedStoreSettings, 'redis'>> {
  readonly redis: RedisCredentials & { readonly topology: RedisTopology }
  /** Number of processes of this gateway that share it; default 1. */
  readonly processes?: number
}

/** A client with its own settings; undefined ones are not checked. `issuer` defaults to the first one and that of the PAR endpoint. */
export interface Client extends Readonly<Omit<Settings['clients'][number], 'limits' | 'jwks' | 'jwksUri'>> {
  /** The id as `foldClientId` returns it. */
  readonly folded: string
  /** The client’s name as a caller: in keys, limits, logs and commands. */
  readonly caller: string
  /** Its public keys: a JWK Set, or its URL. */
  readonly jwks: { readonly keys: readonly object[] } | { readonly url: string } | undefined
}

export type Par = NonNullable<Settings['par']>

type Changed = 'listen' | 'store' | 'upstreams' | 'tokens' | 'clients' | 'routes'

/** The settings with their files read and their names resolved. Durations are in milliseconds, sizes in bytes. */
export interface Compiled extends Readonly<Omit<Settings, Changed>> {
  readonly listen: Readonly<Omit<Settings['listen'], 'hosts' | 'tls'>> & {
    readonly hosts: readonly string[]
    readonly tls: ListenTls | undefined
  }
  readonly store: StoreConfig
  readonly upstreams: readonly (Upstream & { readonly errors: Exclude<ErrorFormat, 'page'> })[]
  /** One for each issuer; empty if no route needs tokens. */
  readonly tokens: readonly Tokens[]
  readonly clients: readonly Client[]
  readonly clientLimits: ClientLimits
  readonly routes: readonly LimitedRoute[]
}

export type Config = Compiled & { readonly warnings: readonly LocatedIssue[] }
