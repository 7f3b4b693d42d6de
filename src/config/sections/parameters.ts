import { z } from 'zod'
import { KINDS, wholeSegment } from '../../limit/parameters.ts'
import { nearest } from '../checks/nearest.ts'
import { textThat } from './values.ts'
import { must } from '../yaml/wording.ts'

const WHAT = `${KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`

/** The kinds of path parameters, by the names of these. */
export const parameters = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, {
      error: 'is not the name of a parameter; write it as routes do, without the colon',
    }),
    textThat((kind) => kindProblem(kind) === undefined, WHAT, kindProblem),
    must('a mapping of path parameters to their kinds'),
  )
  .describe(
    'What a path parameter that a limit counts by must be, else 400: plain (default: letters, digits and -_:@~=), uuid, integer or a regular expression for all of it.',
  )

function kindProblem(kind: string): string | undefined {
  if (KINDS.some((name) => name === kind)) return undefined
  // As a regular expression it would match this one word alone.
  if (/^[A-Za-z]*$/.test(kind)) {
    const meant = nearest(kind, KINDS)
    return `must be ${WHAT}${meant === undefined ? `, not "${kind}"` : `; did you mean "${meant}"?`}`
  }
  try {
    wholeSegment(kind)
  } catch (error) {
    return `is no regular expression: ${(error as Error).message.replace(/^.*: /s, '')}`
  }
  return costlyPart(kind)
}

const TOKENS = /\\.|\[(?:\\.|[^\\\]])*\]|\(\?:|[()|]|[*+?]\??|\{\d+(?:,\d*)?\}\??|[^]/gsu
/** Repetitions without a fixed number that a regular expression may have: a segment's length to this power is what a mismatch costs. */
const MOST_OPEN = 2

/** What in a sound regular expression may try too many ways before it fails; undefined where nothing does. */
function costlyPart(source: string): string | undefined {
  /** For each group that is open, and all of it: may it match a text in several ways? */
  const open = [false]
  let closed = false
  let repetitions = 0
  for (const [token] of source.matchAll(TOKENS)) {
    const isFixed = /^\{\d+\}/.test(token)
    if (token === '(' || token === '(?:') open.push(false)
    else if (token === '|') open[open.length - 1] = true
    else if (/^\\[1-9k]/.test(token)) return 'must not refer back to a group; write out what it matches'
    else if (/^[*+?{]/.test(token) && token !== '{') {
      if (closed && token !== '?')
        return 'may take too long: it repeats a group that has alternatives or repetitions in it; write it without'
      if (!isFixed) {
        if (++repetitions > MOST_OPEN)
          return `may take too long: it has more than ${MOST_OPEN} of *, +, ? and {n,m}; write {n} or characters in [ ]`
        open[open.length - 1] = true
      }
    }
    if (token === ')') {
      closed = open.pop()!
      if (closed) open[open.length - 1] = true
    } else closed = false
  }
  return undefined
}
