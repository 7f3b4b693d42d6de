import { instantMs } from '../../runtime/instant.ts'
import { parseObject } from '../../runtime/json.ts'

/** Maximum length of a summary as JSON, in characters. */
const MAX_LENGTH = 1024

/** The description of a gateway, with its workers, that it sends to the others. */
export interface Summary {
  readonly host: string
  readonly pid: number
  /** An instant in ISO 8601. */
  readonly startedAt: string
  readonly version: string
  /** The hash of the configuration in force; null without a file. */
  readonly configuration: string | null
  /** The URL of the admin listener for other machines; null if there is none. */
  readonly admin: string | null
  /** Per second: calls, those of them that limits refused, and those with a status of 500 or above. */
  readonly calls: number
  readonly refused: number
  readonly failed: number
  /** The words for what a process of it does without Redis; null if its store is up. */
  readonly outage: string | null
  /** Decisions without Redis since the start. */
  readonly withoutRedis: number
}

const isText = (value: unknown): value is string => typeof value === 'string'
const isTextOrNull = (value: unknown): boolean => value === null || isText(value)
const isCount = (value: unknown): boolean => Number.isFinite(value) && Number(value) >= 0
/** True for an instant in UTC. */
const isInstant = (value: unknown): boolean =>
  isText(value) && value.endsWith('Z') && Number.isFinite(instantMs(value))

/**
 * What each field must be, as other programs may write to Redis. Not a schema of zod, which each
 * process would load for it, with its messages in all languages: a tenth of the time of a start.
 */
const FIELDS: Readonly<Record<keyof Summary, (value: unknown) => boolean>> = {
  host: isText,
  pid: isCount,
  startedAt: isInstant,
  version: isText,
  configuration: isTextOrNull,
  admin: isTextOrNull,
  calls: isCount,
  refused: isCount,
  failed: isCount,
  outage: isTextOrNull,
  withoutRedis: isCount,
}

/** Parses a summary, and drops fields that only another version has; returns undefined for anything else. */
export function parseSummary(text: string): Summary | undefined {
  const given = text.length > MAX_LENGTH ? undefined : parseObject(text)
  const fields = Object.entries(FIELDS)
  if (given === undefined || !fields.every(([name, isValid]) => isValid(given[name]))) return undefined
  return Object.fromEntries(fields.map(([name]) => [name, given[name]])) as unknown as Summary
}
