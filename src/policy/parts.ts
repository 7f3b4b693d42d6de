import { badRequest, Refusal } from '../errors.ts'
import { keyOf } from '../limit/key.ts'
import { memoize } from '../runtime/memoize.ts'
import { encodePart, encoderOf, nameInKeys } from './key.ts'
import type { Caller, Facts } from './facts.ts'
import { compileKind, type Parameters, secretParts } from './parameter-kinds.ts'
import type { Limit } from './limit.ts'
import { isDigest } from './secret-values.ts'
import { nameIn, type ReadPart, valueReader, wordOf } from './words.ts'

/** Maximum keys of a limit that are kept for the values of tokens, and the maximum length of these. */
const MAX_KEPT = 10_000
const MAX_LENGTH = 256

/**
 * True for first parts that differ, or are undefined, between requests with the same token and URL.
 */
export function isVariable(part: string | undefined): boolean {
  if (part === undefined) return true
  const { from } = wordOf(part)
  return from === 'connection' || from === 'header'
}

/**
 * Returns the reader of a part as it is in keys. A claim or header field that is not of its kind is
 * malformed; path parameters are checked before.
 */
export function partReader(part: string, parameters: Parameters): ReadPart {
  const valueOf = valueReader(part)
  const encode = encoderOf(part, secretParts(parameters).has(part))
  const { kind, from } = wordOf(part)
  const isChecked = kind !== undefined && from !== 'path'
  const accepts = isChecked ? compileKind(parameters, part).accepts : () => true
  return (caller, facts) => {
    const value = valueOf(caller, facts)
    if (typeof value !== 'string') return value
    return accepts(value) ? encode(value) : null
  }
}

/** Returns the reader of a part that is given by an operator: a digest is already what keys have. */
function readerOfDigests(part: string, parameters: Parameters): ReadPart {
  const [valueOf, read] = [valueReader(part), partReader(part, parameters)]
  return (caller, facts) => {
    const value = valueOf(caller, facts)
    return typeof value === 'string' && isDigest(value) ? encodePart(value) : read(caller, facts)
  }
}

/** The key of a limit, `<prefix>:{<first part>}:<limit>:<rest>`, as read from requests. */
export interface CompiledKey {
  /**
   * Returns the key, or the refusal of a request that lacks a part or has a malformed part: it must
   * not escape the limit.
   */
  keyFor(caller: Caller, facts: Facts): string | Refusal
  /** Returns the key of the first parts that a request has, up to the first that it lacks. */
  beginningOf(caller: Caller, facts: Facts): string
  /** Returns the missing part by which a limit with `skipsMissing` is left out of a request. */
  skippedBy(caller: Caller, facts: Facts): string | undefined
  /** Returns the parts that are missing or malformed. */
  lackingIn(caller: Caller, facts: Facts): readonly string[]
}

export function compileKey(
  limit: Limit,
  prefix: string,
  parameters: Parameters,
  acceptsDigests: boolean,
): CompiledKey {
  const readerOf = acceptsDigests ? readerOfDigests : partReader
  const { per, skipsMissing } = limit
  const name = nameInKeys(limit)
  const parts = per.map((part) => {
    const read = readerOf(part, parameters)
    return { part, read, ...refusalsOf(part, parameters) }
  })
  const begin = beginner(prefix, name, per[0])
  const skipped = skipsMissing ? parts.filter(({ part }) => wordOf(part).mayLack) : []
  return {
    keyFor(caller, facts) {
      let key = ''
      for (const { read, lacking, malformed } of parts) {
        const text = read(caller, facts)
        if (text === undefined) return lacking
        if (text === null) return malformed
        key = key === '' ? begin(text) : `${key}:${text}`
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
 * Returns the function that makes the key of a first part. A client calls again: its key is kept, as
 * the maps that are keyed by it would hash a new one for each call.
 */
function beginner(prefix: string, name: string, first: string | undefined): (text: string) => string {
  const begin = (text: string): string => keyOf(prefix, name, text)
  const isOfToken = first !== undefined && wordOf(first).from === 'token'
  return isOfToken ? memoize(begin, MAX_KEPT, MAX_LENGTH) : begin
}

/**
 * The refusals for a part that a request lacks, or that is not of its kind: a 400 for a header
 * field, a 403 for what a token says.
 */
function refusalsOf(part: string, parameters: Parameters) {
  const { from, isNamed } = wordOf(part)
  const name = nameIn(part)
  const { cause, words } = compileKind(parameters, part)
  if (from === 'header')
    return {
      lacking: badRequest(`Send the header field ${name}; this path is limited by it.`),
      malformed: badRequest(`Send the header field ${name} once; it must be ${words}.`, { cause }),
    }
  const what = isNamed ? `"${name}"` : name
  const lacking = `This path has a limit per ${what}, but the access token does not name one.`
  const malformed = `The claim ${what} of the access token must be ${words}.`
  return {
    lacking: new Refusal('Forbidden', lacking),
    malformed: new Refusal('Forbidden', malformed, { cause }),
  }
}
