import { isIP } from 'node:net'
import type { KeyedLimit } from './key.ts'
import type { Caller, Facts } from './facts.ts'
import { asList } from '../runtime/json.ts'
import { nameIn, wordOf } from './words.ts'

/** A condition on a request. Names of header fields are in lower case; a method has no name. */
export interface Condition {
  readonly of: 'header' | 'claim' | 'method'
  readonly name: string
  readonly is: 'present' | 'absent' | 'ip' | readonly string[]
}

/** The conditions of a limit, which applies if all of `when` and none of `unless` hold. */
export interface Conditional {
  readonly when?: readonly Condition[]
  readonly unless?: readonly Condition[]
}

/**
 * Returns the condition that leaves a limit out of a request, as `explain` shows it; undefined if
 * none does.
 */
export function excludedBy({ when, unless }: Conditional, caller: Caller, facts: Facts) {
  const unmet = when?.find((condition) => !holds(condition, caller, facts, false))
  if (unmet !== undefined) return `when ${formatCondition(unmet)}`
  const met = unless?.find((condition) => holds(condition, caller, facts, true))
  return met && `unless ${formatCondition(met)}`
}

/** True if a condition holds; `isException` for one of `unless`. */
function holds({ of, name, is }: Condition, { claims }: Caller, facts: Facts, isException: boolean) {
  let values: readonly (string | number | boolean)[] | undefined
  if (of === 'header') values = facts.field(name)
  else if (of === 'method') values = [facts.method]
  else if (claims?.[name] !== undefined) values = asList(claims[name])
  if (values === undefined) return is === 'absent'
  if (is === 'absent' || is === 'present') return is === 'present'
  if (is === 'ip') return values.length === 1 && isAddress(values[0])
  if (of !== 'header') return values.some((value) => is.includes(String(value)))
  // A caller chooses the members of a field and their case, and must not escape a limit by either.
  const members = values.join().split(',').map(trimBlanks)
  if (isException) return members.every((member) => is.includes(member))
  const wanted = new Set(is.map((value) => value.toLowerCase()))
  return members.some((member) => wanted.has(member.toLowerCase()))
}

/**
 * Removes the blanks and tabs around a member of a list, which mean nothing (RFC 9110 section
 * 5.6.1). `trim` also removes U+00A0; an expression that splits at a comma with its blanks takes the
 * square of their number.
 */
function trimBlanks(text: string): string {
  let start = 0
  let end = text.length
  while (start < end && isBlank(text.charCodeAt(start))) start++
  while (start < end && isBlank(text.charCodeAt(end - 1))) end--
  return text.slice(start, end)
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09

const isAddress = (value: unknown): boolean =>
  typeof value === 'string' && isIP(value) !== 0 && !value.includes('%')

const formatCondition = ({ of, name, is }: Condition): string =>
  `${of}${name && ` ${name}`} is ${typeof is === 'string' ? is : is.join(' or ')}`

/** The claim that gives a limit its number of calls, itself or by `values`. */
export interface ClaimedLimit {
  readonly name: string
  /** Maximum number of calls that the claim may give. */
  readonly max?: number
  readonly values?: Readonly<Record<string, number>>
}

/**
 * Returns the number of calls that a token gives. Calls `onBad` for a claim that is not a whole
 * number, or not one of `values`.
 */
export function claimedBy(limit: ClaimedLimit, { claims }: Caller, onBad?: () => void): number | undefined {
  const { name, max = Infinity, values } = limit
  const claim = claims?.[name]
  if (claim === undefined) return undefined
  if (values === undefined && Number.isSafeInteger(claim) && Number(claim) >= 0)
    return Math.min(Number(claim), max)
  if (values !== undefined && typeof claim !== 'object' && Object.hasOwn(values, String(claim)))
    return values[String(claim)]
  onBad?.()
  return undefined
}

type Reading = KeyedLimit & Conditional & { readonly claim?: ClaimedLimit }

const conditionNames = ({ when = [], unless = [] }: Conditional, kind: 'header' | 'claim') =>
  [...when, ...unless].flatMap(({ of, name }) => (of === kind ? name : []))

const sorted = (names: readonly string[]): readonly string[] => [...new Set(names)].toSorted()

/** Returns the names of the header fields that limits count by, or that their conditions read. */
export const fieldsOf = (limits: readonly Reading[]): readonly string[] =>
  sorted(
    limits.flatMap((limit) => [
      ...limit.per.flatMap((part) => wordOf(part).field?.(nameIn(part)) ?? []),
      ...conditionNames(limit, 'header'),
    ]),
  )

/** Returns the names of the claims that limits read, sorted. */
export const claimsOf = (limits: readonly Reading[]): readonly string[] =>
  sorted(
    limits.flatMap((limit) => [
      ...(limit.claim === undefined ? [] : [limit.claim.name]),
      ...limit.per.filter((part) => wordOf(part).word === 'claim').map(nameIn),
      ...conditionNames(limit, 'claim'),
    ]),
  )
