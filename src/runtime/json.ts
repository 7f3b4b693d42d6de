import { isUtf8 } from 'node:buffer'

export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/**
 * Returns an object without its members that are null, which many programs write for absent ones;
 * the object itself if there are none.
 */
export function withoutNulls(object: JsonObject): JsonObject {
  for (const name in object)
    if (object[name] === null) return Object.fromEntries(Object.entries(object).filter(isPresent))
  return object
}

const isPresent = ([, value]: readonly [string, unknown]): boolean => value !== null

/** Returns the items of a value that may be one item or a list. */
export const asList = <T>(value: T | readonly T[]): readonly T[] =>
  Array.isArray(value) ? (value as readonly T[]) : [value as T]

const UNSOUND = /[\p{Surrogate}\p{Cc}]/u

/** Returns true for a string without control characters and lone surrogates, which would all be the same in UTF-8. */
export const isName = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && !UNSOUND.test(value)

const BEGINS_OBJECT = /^[\t\n\r ]*\{/

/**
 * Parses a JSON object in UTF-8; returns undefined for anything else, at once if it does not begin as
 * one: the error of the parser costs more than a line of a log. The last duplicate member counts
 * (RFC 7519 section 4).
 */
export function parseObject(json: string | Buffer | undefined): JsonObject | undefined {
  if (json === undefined || (typeof json !== 'string' && !isUtf8(json))) return undefined
  const text = json.toString()
  if (!BEGINS_OBJECT.test(text)) return undefined
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}
