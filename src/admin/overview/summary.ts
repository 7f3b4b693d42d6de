import { instantMs } from '../../runtime/instant.ts'
import { parseObject } from '../../runtime/json.ts'
import { type DecidingMode, MODES } from '../../observe/status.ts'

/** Seconds over which the rates of a summary are averaged. */
export const RECENT_SECONDS = 10
/** Maximum length of a summary as JSON, in characters. */
const MAX_LENGTH = 1024

const isText = (value: unknown): value is string => typeof value === 'string'
const isTextOrNull = (value: unknown): value is string | null => value === null || isText(value)
const isInstant = (text: unknown): text is string => isText(text) && !Number.isNaN(instantMs(text))
const isMode = (value: unknown): value is DecidingMode => MODES.includes(value as DecidingMode)
const isCount = (value: unknown): value is number => Number.isFinite(value) && (value as number) >= 0

/** The fields of a summary, and how each is checked: other programs may write to Redis. */
const FIELDS = {
  host: isText,
  pid: isCount,
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
  /** `store`, or the mode of `onOutage` that decides in any process. */
  mode: isMode,
  /** Decisions without Redis since the start. */
  withoutRedis: isCount,
}

type Checked<Check> = Check extends ((value: unknown) => value is infer Value) ? Value : never

/** The description of a gateway, with its workers, that it sends to the others. */
export type Summary = { readonly [Name in keyof typeof FIELDS]: Checked<(typeof FIELDS)[Name]> }

/** Parses a summary, and drops fields that only another version has; returns undefined for anything else. */
export function parseSummary(text: string): Summary | undefined {
  const read = text.length > MAX_LENGTH ? undefined : parseObject(text)
  const checks = Object.entries(FIELDS)
  if (!checks.every(([name, isValid]) => isValid(read?.[name]))) return undefined
  return Object.fromEntries(checks.map(([name]) => [name, read![name]])) as Summary
}
