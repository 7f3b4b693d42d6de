import { instantMs } from '../../runtime/instant.ts'
import { type JsonObject, parseObject } from '../../runtime/json.ts'

/** Maximum length of a summary as JSON, in characters. */
const MAX_LENGTH = 1024

const isText = (value: unknown): value is string => typeof value === 'string'
const isTextOrNull = (value: unknown): value is string | null => value === null || isText(value)
const isCount = (value: unknown): value is number => Number.isFinite(value) && Number(value) >= 0
/** True for an instant in UTC. */
const isInstant = (value: unknown): value is string =>
  isText(value) && value.endsWith('Z') && Number.isFinite(instantMs(value))

/**
 * The fields of a summary, and what each must be, as other programs may write to Redis. Not a schema
 * of zod, which each process would load for it, with its messages in all languages: a tenth of the
 * time of a start.
 */
const FIELDS = {
  host: isText,
  pid: isCount,
  /** An instant in ISO 8601. */
  startedAt: isInstant,
  version: isText,
  /** The hash of the configuration in force; null without a file. */
  configuration: isTextOrNull,
  /** The URL of the admin listener for other machines; null if there is none. */
  admin: isTextOrNull,
  /** Per second: calls, those of them that limits refused, and those with a status of 500 or above. */
  calls: isCount,
  refused: isCount,
  failed: isCount,
  /** The words for what a process of it does without Redis; null if its store is up. */
  outage: isTextOrNull,
  /** Decisions without Redis since the start. */
  withoutRedis: isCount,
}
type Checked<Check> = Check extends ((value: unknown) => value is infer Value) ? Value : never

/** The description of a gateway, with its workers, that it sends to the others. */
export type Summary = { readonly [Name in keyof typeof FIELDS]: Checked<(typeof FIELDS)[Name]> }

const isSummary = (fields: JsonObject): fields is Summary =>
  Object.entries(FIELDS).every(([name, isValid]) => isValid(fields[name]))

/** Parses a summary, and drops fields that only another version has; returns undefined for anything else. */
export function parseSummary(text: string): Summary | undefined {
  const given = text.length > MAX_LENGTH ? undefined : parseObject(text)
  if (given === undefined) return undefined
  const known = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, given[name]]))
  return isSummary(known) ? known : undefined
}
