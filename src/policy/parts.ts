import type { Route } from '../downstream/router.ts'
import { decodeSegment } from '../downstream/target.ts'
import { badRequest, Refusal } from '../errors.ts'
import { keyOf } from '../limit/key.ts'
import { isName } from '../runtime/json.ts'
import { encoderOf, type KeyedLimit, nameInKeys } from './key.ts'
import { type Caller, type Facts, tokenHash } from './facts.ts'
import type { Limit } from './limit.ts'

/** Kinds of path parameters, claims (`claim:NAME`) and header fields (`header:NAME`, in any case), by name. */
export type Parameters = Readonly<Record<string, string>>

const NAMED = new Map(
  Object.entries({
    plain: { pattern: /^[A-Za-z0-9_:@~=-]+$/, words: 'letters, digits and - _ : @ ~ =' },
    uuid: {
      pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
      words: 'a UUID such as 123e4567-e89b-12d3-a456-426614174000',
    },
    integer: { pattern: /^(?:0|[1-9]\d*)$/, words: 'a whole number without sign and leading zeros' },
  }),
)
/** The named kinds. In each, an id has only one spelling, except for case. */
export const PARAMETER_KINDS = [...NAMED.keys()]
/** Maximum length of a part with a kind, in characters; bounds the cost of matching a regular expression. */
const MAX_LENGTH = 128
/** Maximum length of a claim in a key, in characters. */
const MAX_CLAIM = 255

/** Returns the part of keys that a name of `parameters` means. */
export const partOf = (name: string): string => (/^header:/i.test(name) ? name.toLowerCase() : name)

/** Compiles a regular expression to match the whole decoded segment. Throws a SyntaxError if it is invalid. */
export function wholeSegment(source: string): RegExp {
  // Compiled without the parentheses first: `a)|(?:b` is valid only within them.
  return new RegExp(`^(?:${new RegExp(source, 'u').source})$`, 'u')
}

/**
 * Compiles the kind of a part, one of `PARAMETER_KINDS` or a regular expression: `plain` by default. A claim
 * may be anything by default.
 */
function compileKind(parameters: Parameters, part: string) {
  const own = Object.entries(parameters).find(([name]) => partOf(name) === part)?.[1]
  if (own === undefined && part.startsWith('claim:'))
    return {
      cause: wrongKind(part, 'a text or an integer'),
      words: `a text of at most ${MAX_CLAIM} characters, none a control character, or an integer`,
      accepts: () => true,
    }
  const { pattern, words } = NAMED.get(own ?? 'plain') ?? {
    pattern: wholeSegment(own!),
    words: 'of the form that is served here',
  }
  return {
    cause: wrongKind(part, own ?? 'plain'),
    words: `${words}, ${MAX_LENGTH} characters at most`,
    accepts: (text: string): boolean => text.length <= MAX_LENGTH && pattern.test(text),
  }
}

type Counted = Pick<Route, 'segments'> & { readonly limits: readonly KeyedLimit[] }

/** Returns the parameters of a route's path that its limits count by, in the order of the path. */
export function countedBy({ segments, limits }: Counted): readonly string[] {
  const params = segments.flatMap((segment) => ('param' in segment ? segment.param : []))
  return params.filter((param) => limits.some(({ per }) => per.includes(param)))
}

/**
 * Compiles the check of a route's counted path parameters, which returns a 400 for a parameter that
 * is not of its kind.
 */
export function compileParameters(route: Counted, parameters: Parameters) {
  const checks = countedBy(route).map((name) => ({ name, ...compileKind(parameters, name) }))
  return ({ params }: Pick<Facts, 'params'>): Refusal | undefined => {
    for (const { name, cause, accepts, words } of checks) {
      if (accepts(decodeSegment(params[name]!))) continue
      return badRequest(`The ${name} in the path must be ${words}.`, { cause })
    }
    return undefined
  }
}

/** Reads a part of a request, its value or its encoding: undefined if the request lacks it, null if it is malformed. */
export type Read = (caller: Caller, facts: Facts) => string | null | undefined

/** True for parts that a token must contain, or a caller must send: a request may lack them. */
export const mayLack = (part: string): boolean => part === 'user' || /^(?:claim|header):/.test(part)

/** True for first parts that differ, or are undefined, between requests with the same token and URL. */
export const isVariable = (part: string | undefined): boolean =>
  part === undefined || part === 'ip' || part.startsWith('header:')

/** Returns the reader of the value that a request has for a part of `per`. */
export function valueReader(part: string): Read {
  const [of, name = ''] = part.split(/:(.*)/s)
  switch (of) {
    case 'client':
    case 'user':
      return ({ [of]: id }) => id
    case 'ip':
      return ({ ip }) => ip
    case 'route':
      return (_, { route }) => route?.match
    case 'token':
      return (_, facts) => tokenHash(facts)
    case 'claim':
      return ({ claims }) => (claims?.[name] === undefined ? undefined : (claimText(claims[name]) ?? null))
    case 'header':
      return (_, facts) => {
        const values = facts.field(name)
        if (values === undefined) return undefined
        return values.length === 1 ? values[0] : null
      }
    default:
      return (_, { params }) => params[part]
  }
}

/**
 * Returns the reader of a part as it is in keys. A claim or header field that is not of its kind is
 * malformed; path parameters are checked before.
 */
export function partReader(part: string, parameters: Parameters): Read {
  const valueOf = valueReader(part)
  const encode = encoderOf(part)
  const isChecked = /^(?:claim|header):/.test(part)
  const accepts = isChecked ? compileKind(parameters, part).accepts : () => true
  return (caller, facts) => {
    const value = valueOf(caller, facts)
    if (typeof value !== 'string') return value
    return accepts(value) ? encode(value) : null
  }
}

/**
 * Returns a claim as text; undefined unless it is an integer, or a string of 1 to 255 characters
 * without control characters and lone surrogates. Unsafe integers may be rounded.
 */
export function claimText(claim: unknown): string | undefined {
  if (Number.isSafeInteger(claim)) return String(claim)
  return isName(claim) && claim.length <= MAX_CLAIM ? claim : undefined
}

/**
 * Compiles the key of a limit, `<prefix>:{<first part>}:<limit>:<rest>`. A request that lacks a
 * part, or has a malformed part, is refused: it must not escape the limit. With `skipsMissing`, the
 * limit is left out of a request without a part that it may lack.
 */
export function compileKey(limit: Limit, prefix: string, parameters: Parameters) {
  const { per, skipsMissing } = limit
  const name = nameInKeys(limit)
  const parts = per.map((part) => ({
    part,
    read: partReader(part, parameters),
    ...refusalsOf(part, parameters),
  }))
  const skipped = skipsMissing ? parts.filter(({ part }) => mayLack(part)) : []
  return {
    /** Returns the key, or the refusal of a request without it. */
    keyOf(caller: Caller, facts: Facts): string | Refusal {
      let key = ''
      for (const { read, refuseLacking, refuseMalformed } of parts) {
        const text = read(caller, facts)
        if (text === undefined) return refuseLacking()
        if (text === null) return refuseMalformed()
        key = key === '' ? keyOf(prefix, name, text) : `${key}:${text}`
      }
      return key === '' ? keyOf(prefix, name) : key
    },
    /** Returns the key of the first parts that a request has, up to the first that it lacks. */
    beginningOf(caller: Caller, facts: Facts): string {
      const texts = parts.map(({ read }) => read(caller, facts))
      const known = texts.findIndex((text) => typeof text !== 'string')
      const [first, ...rest] = known === -1 ? texts : texts.slice(0, known)
      return [keyOf(prefix, name, first ?? ''), ...rest].join(':')
    },
    /** Returns the missing part by which the limit is left out of a request. */
    skippedBy(caller: Caller, facts: Facts): string | undefined {
      for (const { part, read } of skipped) if (read(caller, facts) === undefined) return `without ${part}`
      return undefined
    },
    /** Returns the parts that are missing or malformed. */
    lackingIn: (caller: Caller, facts: Facts): readonly string[] =>
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
      refuseLacking: () => badRequest(`Send the header field ${name}; this path is limited by it.`),
      refuseMalformed: () =>
        badRequest(`Send the header field ${name} once; it must be ${words}.`, { cause }),
    }
  const what = name === undefined ? part : `"${name}"`
  const lacking = `The access token names no ${what}, and this path is limited for each ${what}.`
  const malformed = `The claim ${what} of the access token must be ${words}.`
  return {
    refuseLacking: () => new Refusal('Forbidden', lacking),
    refuseMalformed: () => new Refusal('Forbidden', malformed, { cause }),
  }
}

const wrongKind = (part: string, kind: string) => `${part} is not of its kind in parameters: ${kind}`
