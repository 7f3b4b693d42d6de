import { badRequest, Refusal } from '../errors.ts'
import { keyOf } from '../limit/key.ts'
import { isName } from '../runtime/json.ts'
import { encoderOf, nameInKeys } from './key.ts'
import { type Caller, type Facts, tokenHash } from './facts.ts'
import { compileKind, MAX_CLAIM, type Parameters, secretParts } from './parameter-kinds.ts'
import type { Limit } from './limit.ts'

/**
 * Reads a part of a request, its value or its encoding: undefined if the request lacks it, null if
 * it is malformed.
 */
export type Read = (caller: Caller, facts: Facts) => string | null | undefined

/** True for parts that a token must contain, or a caller must send: a request may lack them. */
export const mayLack = (part: string): boolean => part === 'user' || /^(?:claim|header):/.test(part)

/**
 * True for first parts that differ, or are undefined, between requests with the same token and URL.
 */
export const isVariable = (part: string | undefined): boolean =>
  part === undefined || part === 'ip' || part.startsWith('header:')

/** Returns the reader of the value that a request has for a part of `per`. */
export function valueReader(part: string): Read {
  const [of, name = ''] = part.split(/:(.*)/s)
  const readers = new Map<string | undefined, Read>([
    ['client', ({ client }) => client],
    ['user', ({ user }) => user],
    ['ip', ({ ip }) => ip],
    ['route', (_, { route }) => route?.match],
    ['token', (_, facts) => tokenHash(facts)],
    ['claim', ({ claims }) => claimText(claims?.[name])],
    ['header', (_, facts) => onlyValue(facts.field(name))],
  ])
  return readers.get(of) ?? ((_, { params }) => params[part])
}

/** Returns the value of a header field; null if it is there several times. */
const onlyValue = (values: readonly string[] | undefined): string | null | undefined =>
  values !== undefined && values.length > 1 ? null : values?.[0]

/**
 * Returns the reader of a part as it is in keys. A claim or header field that is not of its kind is
 * malformed; path parameters are checked before.
 */
export function partReader(part: string, parameters: Parameters): Read {
  const valueOf = valueReader(part)
  const encode = encoderOf(part, secretParts(parameters).has(part))
  const isChecked = /^(?:claim|header):/.test(part)
  const accepts = isChecked ? compileKind(parameters, part).accepts : () => true
  return (caller, facts) => {
    const value = valueOf(caller, facts)
    if (typeof value !== 'string') return value
    return accepts(value) ? encode(value) : null
  }
}

/**
 * Returns a claim as text; null unless it is an integer, or a string of 1 to 255 characters
 * without control characters and lone surrogates. Unsafe integers may be rounded.
 */
function claimText(claim: unknown): string | null | undefined {
  if (Number.isSafeInteger(claim)) return String(claim)
  if (claim === undefined) return undefined
  return isName(claim) && claim.length <= MAX_CLAIM ? claim : null
}

/** The key of a limit, `<prefix>:{<first part>}:<limit>:<rest>`, as read from requests. */
export interface CompiledKey {
  /**
   * Returns the key, or the refusal of a request that lacks a part or has a malformed part: it must
   * not escape the limit.
   */
  keyOf(caller: Caller, facts: Facts): string | Refusal
  /** Returns the key of the first parts that a request has, up to the first that it lacks. */
  beginningOf(caller: Caller, facts: Facts): string
  /** Returns the missing part by which a limit with `skipsMissing` is left out of a request. */
  skippedBy(caller: Caller, facts: Facts): string | undefined
  /** Returns the parts that are missing or malformed. */
  lackingIn(caller: Caller, facts: Facts): readonly string[]
}

export function compileKey(limit: Limit, prefix: string, parameters: Parameters): CompiledKey {
  const { per, skipsMissing } = limit
  const name = nameInKeys(limit)
  const parts = per.map((part) => {
    const read = partReader(part, parameters)
    return { part, read, ...refusalsOf(part, parameters) }
  })
  const skipped = skipsMissing ? parts.filter(({ part }) => mayLack(part)) : []
  return {
    keyOf(caller, facts) {
      let key = ''
      for (const { read, lacking, malformed } of parts) {
        const text = read(caller, facts)
        if (text === undefined) return lacking
        if (text === null) return malformed
        key = key === '' ? keyOf(prefix, name, text) : `${key}:${text}`
      }
      return key === '' ? keyOf(prefix, name) : key
    },
    beginningOf(caller, facts) {
      const texts = parts.map(({ read }) => read(caller, facts))
      const known = texts.findIndex((text) => typeof text !== 'string')
      const [first, ...rest] = known === -1 ? texts : texts.slice(0, known)
      return [keyOf(prefix, name, first ?? ''), ...rest].join(':')
    },
    skippedBy(caller, facts) {
      const missing = skipped.find(({ read }) => read(caller, facts) === undefined)
      return missing && `without ${missing.part}`
    },
    lackingIn: (caller, facts) =>
      parts.filter(({ read }) => typeof read(caller, facts) !== 'string').map(({ part }) => part),
  }
}

/**
 * The refusals for a part that a request lacks, or that is not of its kind: a 400 for a header
 * field, a 403 for what a token says.
 */
function refusalsOf(part: string, parameters: Parameters) {
  const [of, name] = part.split(/:(.*)/s)
  const { cause, words } = compileKind(parameters, part)
  if (of === 'header')
    return {
      lacking: badRequest(`Send the header field ${name}; this path is limited by it.`),
      malformed: badRequest(`Send the header field ${name} once; it must be ${words}.`, { cause }),
    }
  const what = name === undefined ? part : `"${name}"`
  const lacking = `This path has a limit per ${what}, but the access token does not name one.`
  const malformed = `The claim ${what} of the access token must be ${words}.`
  return {
    lacking: new Refusal('Forbidden', lacking),
    malformed: new Refusal('Forbidden', malformed, { cause }),
  }
}
