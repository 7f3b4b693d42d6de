import { z } from 'zod'
import { PARAMETER_KINDS, wholeSegment } from '../../policy/parameter-kinds.ts'
import { mustBe } from '../yaml/issue.ts'
import { stringThat } from './values.ts'

/** Maximum repetitions without a fixed count. A mismatch costs a value's length to this power. */
const MAX_REPETITIONS = 2
const KIND = `${PARAMETER_KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`
const error = 'names no parameter; write NAME for :NAME of a path, claim:NAME or header:NAME'

export const parameters = z.record(
  z.string().regex(/^(?:[A-Za-z_][A-Za-z0-9_]*|(?:claim|[Hh]eader):.+)$/s, { error }),
  stringThat(checkKind, KIND),
  mustBe('a mapping of path parameters, claims and header fields to their kinds'),
)

function checkKind(kind: string): boolean | string {
  if (PARAMETER_KINDS.some((name) => name === kind)) return true
  // As a regular expression, a word would match only itself.
  if (/^[A-Za-z]*$/.test(kind)) return false
  try {
    wholeSegment(kind)
  } catch (error) {
    return `is not a regular expression: ${(error as Error).message.replace(/^.*: /s, '')}`
  }
  // Escapes but references to groups, and classes, become letters.
  const plain = kind.replaceAll(/\\[^1-9k]|\[(?:\\.|[^\\\]])*\]/gu, 'x')
  // The `?` of a group, such as `(?:`, is no repetition.
  const repetitions = plain.match(/[*+]|(?<!\()\?|\{\d+,\d*\}/g) ?? []
  const isBounded = repetitions.length <= MAX_REPETITIONS && !/\\|\)[*+{]/.test(plain)
  if (isBounded) return true
  return `must have at most ${MAX_REPETITIONS} of *, +, ? and {n,m}, none of a group, and no reference to one`
}
