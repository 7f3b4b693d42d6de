import { stringify } from 'yaml'
import { redactUrl } from '../authenticate/jose/fetch-json.ts'
import { asList, isObject, type JsonObject } from '../runtime/json.ts'
import { isSecret, jsonSchema } from './schema.ts'
import { type Path, writePath } from './yaml/issue.ts'
import { mapTexts, readSource } from './yaml/source.ts'

/** A reference to a secret: a file or an environment variable. */
const REFERENCE = /^(?:file:.*|\$\{\w+\})$/s

/**
 * Returns a value of the file at a path with `***` for secrets, and for the user and the query of
 * URLs.
 */
const hideSecrets = (value: unknown, path?: Path): unknown => mapTexts(value, hideSecret, path)

function hideSecret(text: string, path: Path): string {
  if (REFERENCE.test(text)) return text
  if (/^\w+:\/\//.test(text)) return redactUrl(text.replace(/^(\w+:\/\/).*@/s, '$1***@'))
  return isSecret(path) ? '***' : text
}

interface Schema {
  readonly default?: unknown
  readonly type?: string
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: Schema | false
  readonly items?: Schema
  readonly anyOf?: readonly Schema[]
}

/**
 * Returns a file's settings in its own keys and units, with the schema's defaults and without
 * secrets.
 */
export function shownSettings(file: JsonObject, written: ReturnType<typeof jsonSchema> = jsonSchema()) {
  /** Paths of the settings that the file leaves to their defaults. */
  const defaults: Path[] = []

  function fill(schema: Schema, value: unknown, path: Path): unknown {
    const { properties = {}, additionalProperties: rest, items } = memberOf(schema, value)
    if (Array.isArray(value)) return value.map((item, i) => fill(items ?? {}, item, [...path, i]))
    if (!isObject(value)) return isNumber(schema, value) ? Number(value) : value
    const filled: Record<string, unknown> = { ...value }
    for (const [key, property] of Object.entries(properties)) {
      if (key in value || property.default === undefined || isEmptyList(property.default)) continue
      if (!isObject(property.default)) defaults.push([...path, key])
      filled[key] = property.default
    }
    for (const [key, inner] of Object.entries(filled))
      filled[key] = fill(properties[key] ?? (rest || {}), inner, [...path, key])
    return filled
  }
  return { settings: fill(written as Schema, hideSecrets(file), []) as JsonObject, defaults }
}

/** Returns true for a number that the environment gave as a string. */
const isNumber = ({ anyOf = [] }: Schema, value: unknown): boolean =>
  typeof value === 'string' && /^\d+$/.test(value) && anyOf.some(({ type }) => type === 'integer')

const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0

/** Returns the member of a union that a valid value matches; other schemas as they are. */
function memberOf(schema: Schema, value: unknown): Schema {
  const kind = Array.isArray(value) ? 'array' : typeof value
  const fits = ({ type, required = [] }: Schema): boolean =>
    type === kind && required.every((key) => isObject(value) && key in value)
  const member = schema.anyOf?.find(fits)
  return member === undefined ? schema : memberOf(member, value)
}

const MAX_DIFFERENCES = 20
const MAX_CHARS = 100
/** Keys that name the items of lists: routes, clients, tokens and changes; items without them by `name`. */
const NAMES = ['match', 'id', 'issuer', 'from']

/**
 * Returns the differences between the text `before` of the file and a parsed configuration, in the
 * file's words and without secrets; throws a ConfigError if the text cannot be read.
 */
export function differences(before: string, after: JsonObject, file: string): readonly string[] {
  const shown: string[] = []
  let more = 0
  // Only those that are shown are written: each of 100,000 clients may differ.
  for (const write of compare(readSource(before, file).value, after, [])) {
    if (shown.length < MAX_DIFFERENCES) shown.push(write())
    else more += 1
  }
  return more === 0 ? shown : [...shown, `${more} more`]
}

/** Yields a function for each difference, which writes it. */
function* compare(before: unknown, after: unknown, path: Path): Generator<() => string> {
  const [items, others] = [itemsOf(before), itemsOf(after)]
  if (items && others && Array.isArray(before) === Array.isArray(after)) {
    const names = new Set([...items.keys(), ...others.keys()])
    for (const name of names) yield* compare(items.get(name), others.get(name), [...path, name])
    const kept = [...items.keys()].filter((name) => others.has(name))
    const keptAfter = [...others.keys()].filter((name) => items.has(name))
    if (Array.isArray(after) && kept.join('\n') !== keptAfter.join('\n'))
      yield () => shorten(`${writePath(path)} are in another order: ${[...others.keys()].join(', ')}`)
    return
  }
  if (JSON.stringify(before) === JSON.stringify(after)) return
  const shown = (value: unknown): string => shorten(format(hideSecrets(value, path)))
  if (before === undefined) yield () => `${writePath(path)} added: ${shown(after)}`
  else if (after === undefined) yield () => `${writePath(path)} removed: ${shown(before)}`
  else yield () => `${writePath(path)} ${shown(before)} → ${shown(after)}`
}

/** Returns the name of an item: its id, and its issuer, or the first name of the issuer; else its `name`. */
function nameOf(item: JsonObject): string {
  const names = NAMES.flatMap((key) => asList(item[key])[0] ?? []).filter((name) => typeof name === 'string')
  return names.join(' of ') || (typeof item['name'] === 'string' ? item['name'] : '')
}

/**
 * Returns the values of a mapping by their keys, and the items of a list by their names, such as
 * `acme of https://id.example.com`; undefined for any other value.
 */
function itemsOf(value: unknown): ReadonlyMap<string, unknown> | undefined {
  if (isObject(value)) return new Map(Object.entries(value))
  if (!Array.isArray(value) || !value.every(isObject)) return undefined
  const items = new Map(value.map((item) => [nameOf(item), item]))
  return items.size === value.length && !items.has('') ? items : undefined
}

const format = (value: unknown): string =>
  typeof value === 'string' ? value : stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trimEnd()
const shorten = (text: string) => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text)
