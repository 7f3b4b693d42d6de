import { z } from 'zod'
import { KINDS, wholeSegment } from '../../limit/rules/parts.ts'
import { mustBe, nearest } from '../yaml/issue.ts'
import { stringThat } from './values.ts'

const KIND = `${KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`
const error =
  'is not the name of a parameter; write it as in routes, without the colon, or claim:NAME or header:NAME'

export const parameters = z
  .record(
    z.string().regex(/^(?:[A-Za-z_][A-Za-z0-9_]*|(?:claim|[Hh]eader):.+)$/s, { error }),
    stringThat((kind) => kindIssue(kind) ?? true, KIND),
    mustBe('a mapping of path parameters, claims and header fields to their kinds'),
  )
  .describe(
    'Kinds of the path parameters, header:NAME and claim:NAME that limits count by; other values get 400, or 403 for a claim: plain (default, except for claims: letters, digits and -_:@~=), uuid, integer, or a regular expression for the whole value.',
  )

function kindIssue(kind: string): string | undefined {
  if (KINDS.some((name) => name === kind)) return undefined
  // As a regular expression, a word would match only itself.
  if (/^[A-Za-z]*$/.test(kind)) {
    const similar = nearest(kind, KINDS)
    return `must be ${KIND}${similar === undefined ? '' : `; did you mean "${similar}"?`}`
  }
  try {
    wholeSegment(kind)
  } catch (error) {
    return `is not a regular expression: ${(error as Error).message.replace(/^.*: /s, '')}`
  }
  return costIssue(kind)
}

/** Maximum repetitions without a fixed count in a regular expression. A mismatch costs a segment's length to this power. */
const MAX_UNBOUNDED_REPETITIONS = 2

/** Returns why a valid regular expression may backtrack for too long. */
function costIssue(source: string): string | undefined {
  // Each escape and class becomes a letter, each group starts with `(`, and `?` for lazy repetitions is removed.
  let rest = source
    .replaceAll(/\\[^1-9k]|\[(?:\\.|[^\\\]])*\]/gu, 'x')
    .replaceAll('(?:', '(')
    .replaceAll(/([*+?}])\?/g, '$1')
  if (rest.includes('\\')) return 'must not refer back to a group; write out what it matches'
  if (rest.split(/[*+?]|\{\d+,\d*\}/).length - 1 > MAX_UNBOUNDED_REPETITIONS)
    return `may take too long: it has more than ${MAX_UNBOUNDED_REPETITIONS} of *, +, ? and {n,m}; write {n} or characters in [ ]`
  for (;;) {
    const [group, inner = '', times = ''] = /\(([^()]*)\)([*+]|\{[\d,]+\})?/.exec(rest) ?? []
    if (group === undefined) return undefined
    const isOpen = /[|*+?]|\{\d+,/.test(inner)
    if (isOpen && times !== '')
      return 'may take too long: it repeats a group with alternatives or repetitions; write it without'
    rest = rest.replace(group, isOpen || /[*+,]/.test(times) ? '|' : 'x')
  }
}
