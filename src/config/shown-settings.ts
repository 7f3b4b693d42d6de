import { hideSecrets } from './hide-secrets.ts'
import { jsonSchema } from './schema.ts'
import { isMapping, type Mapping } from './yaml/source.ts'

/** The parts of a JSON Schema that are looked at. */
interface Schema {
  readonly default?: unknown
  readonly type?: string
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: Schema | boolean
  readonly items?: Schema
  readonly anyOf?: readonly Schema[]
}

/** Where the file is silent. */
export type Defaults = ReadonlySet<string>

/**
 * Returns a file's settings in its own keys and units, with the schema's defaults and without secrets. `defaults` are the paths
 * of the latter, their steps as JSON.
 */
export function shownSettings(file: Mapping): { readonly settings: Mapping; readonly defaults: Defaults } {
  const defaults = new Set<string>()
  const settings = fill(jsonSchema() as Schema, hideSecrets(file), [], defaults)
  return { settings: settings as Mapping, defaults }
}

export const pathKey = (path: readonly (string | number)[]): string => JSON.stringify(path)

function fill(
  schema: Schema,
  value: unknown,
  path: readonly (string | number)[],
  defaults: Set<string>,
): unknown {
  const { properties = {}, additionalProperties, items } = branchOf(schema, value)
  if (Array.isArray(value)) return value.map((item, i) => fill(items ?? {}, item, [...path, i], defaults))
  if (!isMapping(value)) return isNumber(schema, value) ? Number(value) : value
  const filled: Record<string, unknown> = {}
  const rest = isMapping(additionalProperties) ? (additionalProperties as Schema) : {}
  for (const [key, inner] of Object.entries(value))
    filled[key] = fill(properties[key] ?? rest, inner, [...path, key], defaults)
  for (const [key, property] of Object.entries(properties)) {
    if (key in value || property.default === undefined || isEmpty(property.default)) continue
    if (!isMapping(property.default)) defaults.add(pathKey([...path, key]))
    filled[key] = fill(property, property.default, [...path, key], defaults)
  }
  return filled
}

/** True for a number that came from the environment, as a text. */
const isNumber = ({ anyOf = [] }: Schema, value: unknown): boolean =>
  typeof value === 'string' && /^\d+$/.test(value) && anyOf.some(({ type }) => type === 'integer')
const isEmpty = (value: unknown): boolean => Array.isArray(value) && value.length === 0

/** Returns the alternative of a schema that a valid value is of. */
function branchOf(schema: Schema, value: unknown): Schema {
  const kind = Array.isArray(value) ? 'array' : isMapping(value) ? 'object' : undefined
  const fits = ({ type, required = [] }: Schema): boolean =>
    type === kind && (kind === 'array' || required.every((key) => key in (value as Mapping)))
  const branch = schema.anyOf?.find(fits)
  return branch === undefined || branch.anyOf === undefined ? (branch ?? schema) : branchOf(branch, value)
}
