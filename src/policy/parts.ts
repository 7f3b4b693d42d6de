import { badRequest, Refusal } from '../errors.ts'
import { keyOf } from '../limit/key.ts'
import { memoizeTogether } from '../runtime/memoize.ts'
import { encodePart, encoderOf, isPerClient, nameInKeys } from './key.ts'
import type { Caller, Facts } from './facts.ts'
import { compileKind, type Parameters, secretParts } from './parameter-kinds.ts'
import type { Limit } from './limit.ts'
import { isDigest } from './secret-values.ts'
import { nameIn, type ReadPart, valueReader, wordOf } from './words.ts'

/** Keeps the keys of clients under all limits: at most 20,000, of ids of at most 64 characters. */
const keptKeys = memoizeTogether(20_000, 64)

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
  const begin = beginner(prefix, name, limit)
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
 * Returns the function that makes the key of a first part. That of a client is kept: a new key for each
 * call is hashed and compared in several maps.
 */
function beginner(prefix: string, name: string, limit: Limit): (text: string) => string {
  const begin = (text: string): string => keyOf(prefix, name, text)
  return isPerClient(limit) ? keptKeys(begin) : begin
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
