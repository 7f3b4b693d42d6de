import { partCount } from '../limit/key.ts'
import { VERSION_FIELD } from '../limit/versioned-fields.ts'
import { instant } from '../runtime/instant.ts'
import { isName } from '../runtime/json.ts'
import { type CountedCaller, counterKey, formatCaller } from './counted-caller.ts'
import { isBareClient, parseCaller, showCaller } from './counted-caller.ts'
import { type KeyedLimit, nameInKeys } from './key.ts'

/**
 * A limit that an operator set for a caller while gateways run; it replaces every other rule until
 * `untilAt`.
 */
export interface Override {
  readonly caller: CountedCaller
  /** The name of the limit. */
  readonly name: string
  readonly limit: number
  /** Epoch milliseconds; undefined if it does not end. */
  readonly untilAt?: number | undefined
  /** Epoch milliseconds at which it was set. */
  readonly setAt: number
  /** The operator who set it, not verified. */
  readonly by?: string | undefined
  readonly note?: string | undefined
}

/** The overrides in force, by `overrideKey`. */
export type Overrides = ReadonlyMap<string, Override>

/** Maximum number of overrides; bounds the memory of each gateway, and what it reads from Redis. */
export const MAX_OVERRIDES = 10_000
/**
 * Maximum length of a field with its value, in characters; a caller, a limit's name and a note are
 * shorter.
 */
const MAX_LENGTH = 4096

/** True if a caller's limit has not ended at an instant (epoch milliseconds). */
export const isActive = ({ untilAt }: Pick<Override, 'untilAt'>, nowMs: number): boolean =>
  untilAt === undefined || nowMs < untilAt

/**
 * True if a caller may have an override of a limit: the limit counts by the caller's parts first.
 */
export const isOverridable = ({ per }: Pick<KeyedLimit, 'per'>, caller: CountedCaller): boolean =>
  caller.every(({ word }, i) => per[i] === word)

/**
 * Returns the key of an override: the words of its caller, and the beginning of the keys that it is
 * for.
 */
export function overrideKey(prefix: string, { caller, name }: Pick<Override, 'caller' | 'name'>) {
  const words = caller.map(({ word }) => word)
  return keyWith(words, counterKey(prefix, name, caller))
}

const keyWith = (words: readonly string[], start: string): string => `${words.join(' ')} ${start}`

/**
 * Returns the override of a key, or of the beginning of one, under a limit: of the caller with the
 * most parts; undefined if there is none.
 */
export function overrideOf(overrides: Overrides, limit: KeyedLimit, key: string) {
  const { name, per } = limit
  const keyed = nameInKeys(limit)
  let start = keyed === name ? key : key.replace(`}:${keyed}`, `}:${name}`)
  for (let parts = Math.min(per.length, partCount(key)); parts > 0; parts--) {
    const found = overrides.get(keyWith(per.slice(0, parts), start))
    if (found !== undefined) return found
    start = start.slice(0, start.lastIndexOf(':'))
  }
  return undefined
}

/**
 * Returns the field that keeps an override. A client is written without its word, like in earlier
 * versions.
 */
export function fieldOf({ caller, name }: Pick<Override, 'caller' | 'name'>): string {
  const value = caller[0]?.value ?? ''
  const isBare = formatCaller(caller) === `client:${value}` && isBareClient(value)
  return JSON.stringify([isBare ? value : formatCaller(caller), name])
}

export const formatOverride = ({ limit, untilAt, setAt, by, note }: Override): string =>
  JSON.stringify({ limit, untilAt, setAt, by, note })

/**
 * Parses overrides; `bad` are the fields that do not hold an override, or are beyond
 * `MAX_OVERRIDES`.
 */
export function parseOverrides(fields: Readonly<Record<string, string>>) {
  const overrides: Override[] = []
  const bad: string[] = []
  for (const [field, value] of Object.entries(fields)) {
    if (field === VERSION_FIELD) continue
    const override = overrides.length < MAX_OVERRIDES ? parseOverride(field, value) : undefined
    if (override === undefined) bad.push(field)
    else overrides.push(override)
  }
  return { overrides, bad }
}

/** Parses a field and its value; undefined if they do not hold an override. */
export function parseOverride(field: string, value: string): Override | undefined {
  if (field.length + value.length > MAX_LENGTH) return undefined
  try {
    const [caller, name] = JSON.parse(field) as readonly [string, unknown]
    const { limit, untilAt, setAt, by, note } = JSON.parse(value) as Override
    const hasInstants = isInstant(setAt) && isInstant(untilAt ?? setAt)
    if (!isName(name) || !isWhole(limit) || !hasInstants) return undefined
    const parts = parseCaller(caller)
    if (!parts.every(({ value }) => isName(value))) return undefined
    return { caller: parts, name, limit, untilAt, setAt, by: textOf(by), note: textOf(note) }
  } catch {
    return undefined
  }
}

/** Other programs may write to Redis: a line feed would forge a line of what commands print. */
const textOf = (value: unknown) => (isName(value) ? value : undefined)
const isWhole = (value: number): boolean => Number.isSafeInteger(value) && value >= 0
/** True for an instant that a Date can represent. */
const isInstant = (value: number): boolean => isWhole(value) && value <= 8.64e15

/** An override as operators read it. Instants are ISO 8601 in UTC, with milliseconds. */
export interface ListedOverride {
  readonly caller: string
  /** The name of the limit. */
  readonly name: string
  readonly limit: number
  /** Null if it does not end. */
  readonly until: string | null
  readonly set: string
  readonly by: string | null
  readonly note: string | null
  /**
   * False if the configuration has no such limit that counts by the caller first: it has no effect.
   */
  readonly applies: boolean
}

/** Lists the overrides that have not ended for operators, by caller and limit. */
export function listOverrides(overrides: readonly Override[], limits: readonly KeyedLimit[], nowMs: number) {
  return overrides
    .filter((override) => isActive(override, nowMs))
    .map(({ caller, name, limit, untilAt, setAt, by = null, note = null }): ListedOverride => {
      const until = untilAt === undefined ? null : instant(untilAt)
      const applies = limits.some((limit) => limit.name === name && isOverridable(limit, caller))
      return { caller: showCaller(caller), name, limit, until, set: instant(setAt), by, note, applies }
    })
    .toSorted((a, b) => compare(a.caller, b.caller) || compare(a.name, b.name))
}

const compare = (a: string, b: string): number => Number(a > b) - Number(a < b)
