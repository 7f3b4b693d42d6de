import { badRequest, type Refusal } from '../errors.ts'
import type { Params } from '../downstream/router.ts'
import { decodeSegment } from '../downstream/target.ts'
import type { LimitedRoute } from './limit.ts'

type Counted = Pick<LimitedRoute, 'segments' | 'limits'>

/** What the parameters of paths must be where a limit counts by them: name → kind. A kind that is none of `KINDS` is a regular expression. */
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
/** The kinds that have a name. In each, an id has one spelling but for case. */
export const KINDS = [...NAMED.keys()]
/** Most characters of a parameter that is counted by; they bound what matching a regular expression costs. */
const MAX_LENGTH = 128

/** Refuses the parameters of a request that are not of their kind: 400; undefined where all are. */
export type RefuseParams = (params: Params) => Refusal | undefined

/** Prepares the check of a route's counted parameters, `plain` where `parameters` names no other kind. */
export function compileParameters(route: Counted, parameters: Parameters): RefuseParams {
  const checks = countedBy(route).map((name) => {
    const kind = kindOf(name, parameters)
    const { pattern, words } = NAMED.get(kind) ?? {
      pattern: wholeSegment(kind),
      words: 'of the form that is served here',
    }
    return { name, pattern, words }
  })
  return (params) => {
    for (const { name, pattern, words } of checks) {
      const text = decodeSegment(params[name]!)
      if (text.length <= MAX_LENGTH && pattern.test(text)) continue
      return badRequest(`The ${name} in the path must be ${words}, ${MAX_LENGTH} characters at most.`)
    }
    return undefined
  }
}

/** The parameters of a route's path that its limits count by, in the order of the path. */
export function countedBy({ segments, limits }: Counted): readonly string[] {
  return segments.flatMap((segment) =>
    'param' in segment && limits.some(({ per }) => per.includes(segment.param)) ? [segment.param] : [],
  )
}

export function kindOf(name: string, parameters: Parameters): string {
  return Object.hasOwn(parameters, name) ? parameters[name]! : 'plain'
}

/** A regular expression as it is matched: against the whole decoded segment. Throws a SyntaxError where it is none. */
export function wholeSegment(source: string): RegExp {
  // By itself first: `a)|(?:b` is one only within the parentheses.
  return new RegExp(`^(?:${new RegExp(source, 'u').source})$`, 'u')
}
