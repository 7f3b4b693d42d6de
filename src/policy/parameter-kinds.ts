import type { Params, Route } from '../downstream/router.ts'
import { decodeSegment } from '../downstream/target.ts'
import { badRequest, type Refusal } from '../errors.ts'
import type { KeyedLimit } from './key.ts'
import { MAX_CLAIM, partOf, wordOf } from './words.ts'

/** The rules for the values of a part of keys. */
export interface Parameter {
  /** One of `PARAMETER_KINDS`, or a regular expression; `plain` by default. */
  readonly kind?: string | undefined
  /** True if the value is only stored and shown as its digest. */
  readonly secret?: boolean | undefined
}

/**
 * The rules of path parameters, claims (`claim:NAME`), header fields (`header:NAME`, in any case)
 * and `user`, by name.
 */
export type Parameters = Readonly<Record<string, Parameter>>

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
/**
 * Maximum length of a part with a kind, in characters; bounds the cost of matching a regular
 * expression.
 */
export const MAX_LENGTH = 128

/** Returns the parts of keys whose values are secret. */
export const secretParts = (parameters: Parameters): ReadonlySet<string> =>
  new Set(
    Object.keys(parameters)
      .filter((name) => parameters[name]!.secret === true)
      .map(partOf),
  )

/**
 * Compiles a regular expression to match the whole decoded segment. Throws a SyntaxError if it is
 * invalid.
 */
export function wholeSegment(source: string): RegExp {
  // Compiled without the parentheses first: `a)|(?:b` is valid only within them.
  return new RegExp(`^(?:${new RegExp(source, 'u').source})$`, 'u')
}

/**
 * Returns the length in characters that the numbers of an expression add up to, such as 68 for
 * `[a-z]{4}[0-9]{1,64}`: of its longest alternative. `*` and `+` state none.
 */
export function statedLength(source: string): number {
  const plain = source.replaceAll(/\\.|\[(?:\\.|[^\\\]])*\]/gu, 'x')
  const lengths = plain.split('|').map((alternative) => {
    let length = 0
    for (const [, min, max] of alternative.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) length += Number(max || min)
    return length
  })
  return Math.max(...lengths)
}

/** Returns the kind that `parameters` gives a part, if any. */
export const kindOf = (parameters: Parameters, part: string): string | undefined =>
  Object.entries(parameters).find(([name]) => partOf(name) === part)?.[1].kind

/**
 * Compiles the kind of a part, one of `PARAMETER_KINDS` or a regular expression: `plain` by default.
 * A claim may be anything by default.
 */
export function compileKind(parameters: Parameters, part: string) {
  const own = kindOf(parameters, part)
  if (own === undefined && wordOf(part).kind === 'text')
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

/** Returns the names of the parameters in a route's path. */
export const parametersOf = ({ segments }: Pick<Route, 'segments'>): readonly string[] =>
  segments.flatMap((segment) => ('param' in segment ? segment.param : []))

type Counted = Pick<Route, 'segments'> & { readonly limits: readonly KeyedLimit[] }

/** Returns the names of the parameters in a route's path that its limits count by. */
export const countedParameters = (route: Counted): readonly string[] =>
  parametersOf(route).filter((name) => route.limits.some(({ per }) => per.includes(name)))

const acceptAll = (): undefined => undefined

/**
 * Compiles the check of a route's counted path parameters, which returns a 400 for a parameter that
 * is not of its kind.
 */
export function compileParameters(route: Counted, parameters: Parameters) {
  const checks = countedParameters(route).map((name) => ({ name, ...compileKind(parameters, name) }))
  if (checks.length === 0) return acceptAll
  return ({ params }: { readonly params: Params }): Refusal | undefined => {
    for (const { name, cause, accepts, words } of checks) {
      if (accepts(decodeSegment(params[name]!))) continue
      return badRequest(`The ${name} in the path must be ${words}.`, { cause })
    }
    return undefined
  }
}

const wrongKind = (part: string, kind: string) => `${part} is not of its kind in parameters: ${kind}`
