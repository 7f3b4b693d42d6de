import { asList, isName, type JsonObject } from '../../runtime/json.ts'

type Scalar = string | number | boolean

/** The claims of a token that limits read, by name. */
export type Claims = Readonly<Record<string, Scalar | readonly Scalar[]>>

/** Maximum length of a text that is kept, in characters. */
const MAX_CHARS = 255

const isKept = (value: unknown): value is Scalar =>
  typeof value === 'string' ? value.length <= MAX_CHARS : ['number', 'boolean'].includes(typeof value)

/**
 * Returns the named claims: numbers, booleans and short texts, and lists of them; an empty list for
 * any other value but null.
 */
export function keptClaims(claims: JsonObject, names: readonly string[] = []): Claims | undefined {
  if (names.length === 0) return undefined
  const kept = Object.create(null) as Record<string, Scalar | readonly Scalar[]>
  for (const name of names) {
    const value = Object.hasOwn(claims, name) ? claims[name] : undefined
    if (value === undefined || value === null) continue
    kept[name] = isKept(value) ? value : asList(value).filter(isKept)
  }
  return kept
}

/** Maximum characters of a plan that a token names: names of plans are shorter. */
const MAX_PLAN = 65

/** Returns the plan that a claim names, cut; a value that is not a text becomes one that no plan has. */
export function readPlan(claim: unknown): string | undefined {
  if (claim === undefined || claim === null) return undefined
  const text = typeof claim === 'string' ? claim : JSON.stringify(claim)
  return text.slice(0, MAX_PLAN)
}

const isScope = (item: unknown): item is string => typeof item === 'string' && /^\S+$/.test(item)

/**
 * Returns the scopes of a token, separated by spaces: from `scope` (RFC 9068 section 2.2.3) or, in
 * its absence, from `scp`, each a text or a list. Undefined if it has none.
 */
export function readScope({ scp, scope = scp }: JsonObject): string | undefined {
  if (typeof scope === 'string') return scope
  // A blank within an item would make two scopes of it.
  return Array.isArray(scope) ? scope.filter(isScope).join(' ') : undefined
}

/**
 * Returns the user in `sub`: undefined if it is empty, as in tokens without a user; a whole number
 * becomes a text. Returns null for any other value, because two of them could become the same text.
 */
export function readUser(sub: unknown): string | undefined | null {
  if (sub === undefined || sub === '') return undefined
  if (typeof sub === 'number' && Number.isSafeInteger(sub)) return String(sub)
  return isName(sub) ? sub : null
}
