import { stringify } from 'yaml'
import { redactUrl } from '../authenticate/token/fetch-json.ts'
import { jsonSchema, SECRETS } from './schema.ts'
import { ConfigError, locate, type Path } from './yaml/issue.ts'
import { isMapping, type Mapping, readSource } from './yaml/source.ts'

/** A reference to a secret: a file or an environment variable. */
const REFERENCE = /^(?:file:.*|\$\{\w+\})$/s

/** Returns a value of the file at a path with `***` for secrets, and for the user and the query of URLs. */
function hideSecrets(value: unknown, path: Path = []): unknown {
  if (Array.isArray(value)) return value.map((item, i) => hideSecrets(item, [...path, i]))
  if (isMapping(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [key, hideSecrets(inner, [...path, key])]),
    )
  if (typeof value !== 'string' || REFERENCE.test(value)) return value
  if (/^\w+:\/\//.test(value)) return redactUrl(value.replace(/^(\w+:\/\/).*@/s, '$1***@'))
  const matches = (step: string, i: number): boolean => step === '*' || step === String(path[i])
  const isSecret = SECRETS.some((secret) => secret.length === path.length && secret.every(matches))
  return isSecret ? '***' : value
}

interface Schema {
  readonly default?: unknown
  readonly type?: string
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: Schema | boolean
  readonly items?: Schema
  readonly anyOf?: readonly Schema[]
}

/** Paths of the settings that the file leaves to their defaults, as `pathKey` returns them. */
export type Defaults = ReadonlySet<string>

/** Returns a file's settings in its own keys and units, with the schema's defaults and without secrets. */
export function shownSettings(file: Mapping): { readonly settings: Mapping; readonly defaults: Defaults } {
  const defaults = new Set<string>()
  const settings = fill(jsonSchema() as Schema, hideSecrets(file), [], defaults)
  return { settings: settings as Mapping, defaults }
}

export const pathKey = (path: Path): string => JSON.stringify(path)

function fill(schema: Schema, value: unknown, path: Path, defaults: Set<string>): unknown {
  const { properties = {}, additionalProperties, items } = branchOf(schema, value)
  if (Array.isArray(value)) return value.map((item, i) => fill(items ?? {}, item, [...path, i], defaults))
  if (!isMapping(value)) return isNumber(schema, value) ? Number(value) : value
  const filled: Record<string, unknown> = {}
  const rest = isMapping(additionalProperties) ? (additionalProperties as Schema) : {}
  for (const [key, inner] of Object.entries(value))
    filled[key] = fill(properties[key] ?? rest, inner, [...path, key], defaults)
  for (const [key, property] of Object.entries(properties)) {
    if (key in value || property.default === undefined || isEmptyList(property.default)) continue
    if (!isMapping(property.default)) defaults.add(pathKey([...path, key]))
    filled[key] = fill(property, property.default, [...path, key], defaults)
  }
  return filled
}

/** Returns true for a number that the environment gave as a string. */
const isNumber = ({ anyOf = [] }: Schema, value: unknown): boolean =>
  typeof value === 'string' && /^\d+$/.test(value) && anyOf.some(({ type }) => type === 'integer')
const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0

/** Returns the member of a union that a valid value matches; other schemas as they are. */
function branchOf(schema: Schema, value: unknown): Schema {
  const kind = Array.isArray(value) ? 'array' : isMapping(value) ? 'object' : undefined
  const fits = ({ type, required = [] }: Schema): boolean =>
    type === kind && (kind === 'array' || required.every((key) => key in (value as Mapping)))
  const branch = schema.anyOf?.find(fits)
  return branch?.anyOf === undefined ? (branch ?? schema) : branchOf(branch, value)
}

const MAX_DIFFERENCES = 20
const MAX_CHARS = 100
/** Keys that name the items of lists: routes, clients, tokens and changes. */
const NAMES = ['match', 'id', 'issuer', 'from']

/** Returns the differences between two texts of a configuration, in the file's words and without secrets; throws a ConfigError. */
export function differences(before: string, after: string, file = 'the file before'): readonly string[] {
  const all = [...compare(parse(before, file), parse(after, file), [])]
  const more = all.length - MAX_DIFFERENCES
  return more <= 0 ? all : [...all.slice(0, MAX_DIFFERENCES), `${more} more`]
}

function parse(text: string, file: string): Mapping {
  const { value, mistakes, positionOf } = readSource(text)
  if (value === undefined) throw new ConfigError(locate(mistakes, file, positionOf))
  return value
}

function* compare(before: unknown, after: unknown, path: Path): Generator<string> {
  const [items, others] = [itemsOf(before), itemsOf(after)]
  if (items !== undefined && others !== undefined && Array.isArray(before) === Array.isArray(after)) {
    const names = new Set([...items.keys(), ...others.keys()])
    for (const name of names) yield* compare(items.get(name), others.get(name), [...path, name])
    const order = [...items.keys()].filter((name) => others.has(name))
    const isReordered = order.join('\n') !== [...others.keys()].filter((name) => items.has(name)).join('\n')
    if (Array.isArray(after) && isReordered)
      yield shorten(`${shownPath(path)} are in another order: ${[...others.keys()].join(', ')}`)
    return
  }
  if (JSON.stringify(before) === JSON.stringify(after)) return
  const shown = (value: unknown): string => shorten(format(hideSecrets(value, path)))
  if (before === undefined) yield `${shownPath(path)} added: ${shown(after)}`
  else if (after === undefined) yield `${shownPath(path)} removed: ${shown(before)}`
  else yield `${shownPath(path)} ${shown(before)} → ${shown(after)}`
}

const namesOf = (item: Mapping) => NAMES.map((key) => item[key]).filter((name) => typeof name === 'string')

/** Returns the values of a mapping by their keys, and the items of a list by their names; undefined for any other value. */
function itemsOf(value: unknown): ReadonlyMap<string, unknown> | undefined {
  if (isMapping(value)) return new Map(Object.entries(value))
  if (!Array.isArray(value) || !value.every(isMapping)) return undefined
  const items = new Map(value.map((item) => [namesOf(item).join(' of '), item]))
  return items.size === value.length && !items.has('') ? items : undefined
}

/** Formats a path as the file nests it, such as `limits.requests.limit` or `routes["/v3/*"].timeout`. */
function shownPath(path: Path): string {
  const steps = path.map((step) => (/^[\w-]+$/.test(String(step)) ? `.${step}` : `[${JSON.stringify(step)}]`))
  return steps.join('').replace(/^\./, '')
}

const format = (value: unknown): string =>
  typeof value === 'string' ? value : stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trimEnd()
const shorten = (text: string): string => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text)
