import { z } from 'zod'
import { KINDS, wholeSegment } from '../../limit/parameters.ts'
import { mustBe, nearest } from '../yaml/wording.ts'
import { textWhere } from './values.ts'

const WHAT = `${KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`

/** The kinds of path parameters, by the names of these. */
export const parameters = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, {
      error: 'is not the name of a parameter; write it as routes do, without the colon',
    }),
    textWhere((kind) => kindProblem(kind) ?? true, WHAT),
    mustBe('a mapping of path parameters to their kinds'),
  )
  .describe(
    'Kinds of the path parameters that limits count by; other values get 400: plain (default: letters, digits and -_:@~=), uuid, integer, or a regular expression for the whole segment.',
  )

function kindProblem(kind: string): string | undefined {
  if (KINDS.some((name) => name === kind)) return undefined
  // As a regular expression it would match this one word alone.
  if (/^[A-Za-z]*$/.test(kind)) {
    const meant = nearest(kind, KINDS)
    return `must be ${WHAT}${meant === undefined ? '' : `; did you mean "${meant}"?`}`
  }
  try {
    wholeSegment(kind)
  } catch (error) {
    return `is no regular expression: ${(error as Error).message.replace(/^.*: /s, '')}`
  }
  return costlyPart(kind)
}

/** Repetitions without a fixed number that a regular expression may have: a segment's length to this power is what a mismatch costs. */
const MOST_OPEN = 2

/** Finds what makes a sound regular expression backtrack too long; undefined if nothing does. */
function costlyPart(source: string): string | undefined {
  // A letter for each escape and class; `(` for every group, and no mark of laziness.
  let rest = source
    .replaceAll(/\\[^1-9k]|\[(?:\\.|[^\\\]])*\]/gu, 'x')
    .replaceAll('(?:', '(')
    .replaceAll(/([*+?}])\?/g, '$1')
  if (rest.includes('\\')) return 'must not refer back to a group; write out what it matches'
  if (rest.split(/[*+?]|\{\d+,\d*\}/).length - 1 > MOST_OPEN)
    return `may take too long: it has more than ${MOST_OPEN} of *, +, ? and {n,m}; write {n} or characters in [ ]`
  for (;;) {
    const [group, inner = '', times = ''] = /\(([^()]*)\)([*+]|\{[\d,]+\})?/.exec(rest) ?? []
    if (group === undefined) return undefined
    const isOpen = /[|*+?]|\{\d+,/.test(inner)
    if (isOpen && times !== '')
      return 'may take too long: it repeats a group that has alternatives or repetitions in it; write it without'
    rest = rest.replace(group, isOpen || /[*+,]/.test(times) ? '|' : 'x')
  }
}
