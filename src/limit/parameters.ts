import { badRequest, type Refusal } from '../errors.ts'
import type { Params, Route } from '../downstream/router.ts'
import { decodeSegment } from '../downstream/target.ts'
import type { KeyedLimit } from './key.ts'

interface Counted extends Pick<Route, 'segments'> {
  readonly limits: readonly KeyedLimit[]
}

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
export const KINDS = [...NAMED.keys()]
/** Maximum length of a parameter that a limit counts by, in characters; bounds the cost of matching a regular expression. */
const MAX_LENGTH = 128

export type RefuseParams = ReturnType<typeof compileParameters>

/** Returns the part of keys that a name of `parameters` means. */
export const partOf = (name: string): string => (/^header:/i.test(name) ? name.toLowerCase() : name)

/** Compiles the kind of a part, one of `KINDS` or a regular expression; default `plain`, except that a claim may be anything. */
function compileKind(parameters: Parameters, part: string) {
  const own = Object.entries(parameters).find(([name]) => partOf(name) === part)?.[1]
  const kind = own ?? (part.startsWith('claim:') ? undefined : 'plain')
  if (kind === undefined) return undefined
  const named = NAMED.get(kind)
  return named ?? { pattern: wholeSegment(kind), words: 'of the form that is served here' }
}

/** Returns the check of a claim or a header field that is a part of keys; undefined if it may be anything. */
export function checkOf(parameters: Parameters, part: string): ((text: string) => boolean) | undefined {
  const kind = compileKind(parameters, part)
  return kind && ((text) => text.length <= MAX_LENGTH && kind.pattern.test(text))
}

/** Compiles the check of a route's counted parameters. */
export function compileParameters(route: Counted, parameters: Parameters) {
  const checks = countedBy(route).map((name) => ({ name, ...compileKind(parameters, name)! }))
  return (params: Params): Refusal | undefined => {
    for (const { name, pattern, words } of checks) {
      const text = decodeSegment(params[name]!)
      if (text.length <= MAX_LENGTH && pattern.test(text)) continue
      return badRequest(`The ${name} in the path must be ${words}, ${MAX_LENGTH} characters at most.`)
    }
    return undefined
  }
}

/** Returns the parameters of a route's path that its limits count by, in the order of the path. */
export function countedBy({ segments, limits }: Counted): readonly string[] {
  return segments.flatMap((segment) =>
    'param' in segment && limits.some(({ per }) => per.includes(segment.param)) ? [segment.param] : [],
  )
}

/** Compiles a regular expression to match the whole decoded segment. Throws a SyntaxError if it is invalid. */
export function wholeSegment(source: string): RegExp {
  // Compiled without the parentheses first: `a)|(?:b` is valid only within them.
  return new RegExp(`^(?:${new RegExp(source, 'u').source})$`, 'u')
}
