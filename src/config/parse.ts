import type { z } from 'zod'
import { isObject, type JsonObject } from '../runtime/json.ts'
import { type Issue, mistakesOf, writePath } from './yaml/issue.ts'

/**
 * Parses the settings of a file. Returns them, or their mistakes. The mistake of an empty key, such as
 * one whose items are all commented out, says whether the key may be removed.
 */
export function parseSettings<T extends z.ZodType>(
  schema: T,
  value: JsonObject,
): { readonly data?: z.output<T>; readonly mistakes: readonly Issue[] } {
  const parsed = schema.safeParse(value)
  if (parsed.success) return { data: parsed.data, mistakes: [] }
  const mistakes = mistakesIn(parsed.error)
  if (!mistakes.some((issue) => isEmptyKey(value, issue))) return { mistakes }
  const other = schema.safeParse(withoutEmptyKeys(value))
  const missing = new Set(other.success ? [] : mistakesIn(other.error).map(({ path }) => writePath(path)))
  const withRemedy = (issue: Issue): Issue =>
    isEmptyKey(value, issue) && !missing.has(writePath(issue.path))
      ? { ...issue, message: `${issue.message}; or remove "${issue.path.at(-1)}"` }
      : issue
  return { mistakes: mistakes.map(withRemedy) }
}

const mistakesIn = ({ issues }: z.ZodError): readonly Issue[] => issues.flatMap((issue) => mistakesOf(issue))

/** True for a known key without a value. */
function isEmptyKey(value: JsonObject, { path, message }: Issue): boolean {
  if (message.startsWith('unknown key')) return false
  let inner: unknown = value
  for (const step of path) inner = (inner as JsonObject | undefined)?.[step]
  return inner === null && typeof path.at(-1) === 'string'
}

function withoutEmptyKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutEmptyKeys)
  if (!isObject(value)) return value
  const entries = Object.entries(value).filter(([, inner]) => inner !== null)
  return Object.fromEntries(entries.map(([key, inner]) => [key, withoutEmptyKeys(inner)]))
}
