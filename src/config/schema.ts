import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { z } from 'zod'
import { packageFile } from '../runtime/package.ts'
import { admin } from './sections/admin.ts'
import { cors } from './sections/cors.ts'
import { clients, par, tokens } from './sections/identity.ts'
import { keys, plans } from './sections/keys.ts'
import { limitsSection } from './sections/limits.ts'
import { forwardAuth, listenSection, store } from './sections/listeners.ts'
import { metrics } from './sections/metrics.ts'
import type { Parameters } from '../policy/parameter-kinds.ts'
import { parameters } from './sections/parameters.ts'
import { failures, headers, routes, upstreams } from './sections/routes.ts'
import { configuration, include, teamSection } from './sections/team.ts'
import { fetchedUrl, headerFields, pageUrl } from './sections/texts.ts'
import { choice, coerced, duration, section, text } from './sections/values.ts'
import { mustBe, type Path } from './yaml/issue.ts'

const log = section({
  level: choice(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
  format: choice(['json', 'pretty']).optional(),
  refusals: choice(['all', 'sampled']).default('all'),
  audit: text('the path of a file that the gateway may write').optional(),
  path: choice(['full', 'route']).default('full'),
  ip: choice(['full', 'truncated', 'none']).default('full'),
})

const ratio = mustBe('a number from 0 to 1, such as 0.01')
const fraction = coerced(z.number(ratio).min(0, ratio).max(1, ratio))
const RECEIVER = 'the URL of an OTLP/HTTP receiver, such as http://otel-collector:4318/v1/traces'

const tracing = section({
  endpoint: fetchedUrl(RECEIVER),
  sampleRatio: fraction.prefault(0.01),
  refused: fraction.prefault(0),
  headers: headerFields.default({}),
})

const errors = section({ documentation: pageUrl.optional() })

const sections = {
  include: include.optional(),
  configuration: configuration.prefault({}),
  listen: listenSection.prefault({}),
  admin: admin.prefault({}),
  forwardAuth: forwardAuth.optional(),
  drainTimeoutMs: duration('0s', '1h').prefault('10s'),
  log: log.prefault({}),
  store,
  upstreams: upstreams.default([]),
  tokens: tokens.optional(),
  keys: keys.optional(),
  plans,
  par: par.optional(),
  clients: clients.default([]),
  limits: limitsSection.prefault({}),
  parameters: parameters.prefault({}),
  headers: headers.prefault({}),
  errors: errors.prefault({}),
  cors: cors.optional(),
  failures: failures.optional(),
  metrics: metrics.prefault({}),
  tracing: tracing.optional(),
}

export const settings = section({ ...sections, routes })
/** The main file with `include`, which may leave all routes to teams. */
export const settingsWithTeams = section({ ...sections, routes: routes.optional() })

/** Present in what a team's file has. */
interface OfTeam {
  readonly team?: string | undefined
  /** The kinds of the team, before those of the main file. */
  readonly parameters?: Parameters | undefined
}
/** Present in an upstream of a team. */
interface UpstreamOfTeam {
  /** The folder that the files of `tls` must be in. */
  readonly folder?: string | undefined
}
type Sections = z.output<typeof settings>

/**
 * The main file as read, with defaults; durations in milliseconds, sizes in bytes. The routes,
 * limits and upstreams of teams may be added.
 */
export type Settings = Omit<Sections, 'routes' | 'limits' | 'upstreams'> & {
  readonly upstreams: readonly (Sections['upstreams'][number] & UpstreamOfTeam)[]
  readonly routes: readonly (Sections['routes'][number] & OfTeam)[]
  readonly limits: readonly (Sections['limits'][number] & OfTeam)[]
}

/** A team's file as read. */
export type TeamSettings = z.output<typeof teamSection>

type JsonSchema = z.core.JSONSchema.BaseSchema

let ofMainFile: JsonSchema | undefined

/**
 * Returns the JSON Schema of the file, with the texts of config/reference/descriptions.yaml. It
 * also accepts `${NAME}` for any value. Always the same object, which must not be changed.
 */
export const jsonSchema = (): JsonSchema =>
  (ofMainFile ??= jsonSchemaOf(settingsWithTeams, 'config', 'Sluice', ''))

/** Returns the JSON Schema of a team's file. */
export const teamJsonSchema = (): JsonSchema => jsonSchemaOf(teamSection, 'team', 'A team of Sluice', 'team.')

function jsonSchemaOf(section: z.ZodType, id: string, title: string, texts: string): JsonSchema {
  const { $schema, ...schema } = z.toJSONSchema(section, {
    io: 'input',
    override: ({ jsonSchema, path }) => {
      if (path.at(-1) !== 'propertyNames') allowVariable(jsonSchema)
    },
  })
  const file = packageFile('config/reference/descriptions.yaml')
  const all = parse(readFileSync(file, 'utf8')) as Texts
  const own = Object.entries(all).filter(([path]) => path.startsWith(texts))
  const ofTeam = own.map(([path, text]) => [path.slice(texts.length), text])
  addDescriptions(schema, '', { ...all, ...Object.fromEntries(ofTeam) })
  const description = 'A value of the environment: ${NAME} or ${NAME:-default}.'
  const $defs = { variable: { type: 'string', pattern: '\\$\\{', description }, ...IN_QUOTES } as const
  return { $schema: $schema!, $id: `urn:sluice:${id}`, title, ...schema, $defs }
}

type Texts = Readonly<Record<string, string>>

/**
 * Adds the descriptions of the settings within a schema, by their paths, such as `clients[]` or
 * `limits.*.when.header`.
 */
function addDescriptions(schema: JsonSchema, path: string, texts: Texts): void {
  const { properties = {}, additionalProperties: rest, items, anyOf = [] } = schema
  const add = (inner: unknown, at: string): void => {
    if (texts[at] !== undefined) (inner as JsonSchema).description = texts[at]
    addDescriptions(inner as JsonSchema, at.replace(/\[\]$/, ''), texts)
  }
  for (const [key, inner] of Object.entries(properties)) add(inner, path ? `${path}.${key}` : key)
  if (typeof rest === 'object') add(rest, `${path}.*`)
  if (items !== undefined) add(items, `${path}[]`)
  for (const member of anyOf) addDescriptions(member, path, texts)
}

function allowVariable(schema: z.core.JSONSchema.BaseSchema): void {
  const { description: _, default: __, ...value } = schema
  const isCoerced = /^(?:boolean|integer|number)$/.test(String(value.type))
  if (!isCoerced && !value.enum && value.const === undefined && !value.pattern) return
  for (const key of Object.keys(value)) delete schema[key]
  const inQuotes = isCoerced ? [{ $ref: `#/$defs/${String(value.type)}` }] : []
  schema.anyOf = [value, ...inQuotes, { $ref: '#/$defs/variable' }]
}

/** Numbers and booleans in quotes, which `coerced` accepts: templates such as Helm's write them. */
const IN_QUOTES = {
  boolean: { type: 'string', pattern: '^(true|false)$' },
  integer: { type: 'string', pattern: '^\\d+$' },
  number: { type: 'string', pattern: '^\\d*\\.?\\d+$' },
} as const

/** Match the written paths of secrets, whose items of lists may have names in place of indexes. */
const SECRETS = [
  /^admin\.(?:tokens\.(?:.*\.)?)?token$/s,
  /^tokens\.(?:.*\.)?introspection\.clientSecret$/s,
  /^store\.redis\.(?:url|cluster\.\d+|username|password|sentinelUsername|sentinelPassword)$/,
  /^tracing\.headers\./,
]

/** Returns true if `file:/path` may read the value at a path from a file. */
export const isSecret = (path: Path) => SECRETS.some((secret) => secret.test(path.join('.')))
