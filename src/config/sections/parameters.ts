import { z } from 'zod'
import { type Parameter, PARAMETER_KINDS, wholeSegment } from '../../policy/parameter-kinds.ts'
import { partOf, wordOf, WRITTEN_PART } from '../../policy/words.ts'
import { issueAtKey, mustBe } from '../yaml/issue.ts'
import { toError } from '../../runtime/to-error.ts'
import { bool, crossField, section, stringThat } from './values.ts'

/** Maximum repetitions without a fixed count. A mismatch costs a value's length to this power. */
const MAX_REPETITIONS = 2
const KIND = `${PARAMETER_KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`
const RULE = `${KIND}; or { kind: KIND, secret: true }`
const error =
  'names no parameter; write NAME for :NAME of a path, claim:NAME or header:NAME, or user if it is secret'

const kind = stringThat(checkKind, KIND)
const rule = section({ kind: kind.exactOptional(), secret: bool.prefault(false) })
const isNumber = (input: unknown) => typeof input === 'number' && 'is a number here; put it in quotes'

export const parameters = z
  .record(
    z.string().regex(WRITTEN_PART, { error }),
    z.union([kind.transform((kind): Parameter => ({ kind })), rule], mustBe(RULE, isNumber)),
    mustBe('a mapping of path parameters, claims and header fields to their kinds'),
  )
  .superRefine(
    crossField(function* (parameters) {
      const written = new Map<string, string>()
      for (const [name, parameter] of Object.entries(parameters)) {
        const same = written.get(partOf(name))
        written.set(partOf(name), name)
        const message = mistakeIn(name, parameter)
        if (message !== undefined) yield issueAtKey([name], message)
        else if (same !== undefined) yield issueAtKey([name], `is the same as "${same}"; remove one of them`)
      }
    }),
  )

/** Returns the mistake in the rule for a part of a caller that has no kind, or that cannot be a secret. */
function mistakeIn(name: string, { kind, secret }: Parameter): string | undefined {
  const { kind: ownKind, mayBeSecret, compares, isSecret } = wordOf(name)
  if (ownKind !== undefined) return undefined
  if (mayBeSecret) return kind === undefined ? undefined : 'has no kind; write { secret: true }'
  if (kind !== undefined) return 'has no kind; remove it'
  if (secret !== true) return undefined
  if (compares === 'network') return 'cannot be a secret, as limits compare networks; set log.ip instead'
  return isSecret ? 'is always a secret; remove it' : 'cannot be a secret; remove it'
}

function checkKind(kind: string): boolean | string {
  if (PARAMETER_KINDS.some((name) => name === kind)) return true
  // As a regular expression, a word would match only itself.
  if (/^[A-Za-z]*$/.test(kind)) return false
  try {
    wholeSegment(kind)
  } catch (error) {
    return `is not a regular expression: ${toError(error).message.replace(/^.*: /s, '')}`
  }
  // Escapes but references to groups, and classes, become letters.
  const plain = kind.replaceAll(/\\[^1-9k]|\[(?:\\.|[^\\\]])*\]/gu, 'x')
  // The `?` of a group, such as `(?:`, is not a repetition.
  const repetitions = plain.match(/[*+]|(?<!\()\?|\{\d+,\d*\}/g) ?? []
  const isBounded = repetitions.length <= MAX_REPETITIONS && !/\\|\)[*+{]/.test(plain)
  if (isBounded) return true
  return `must have at most ${MAX_REPETITIONS} of *, +, ? and {n,m}, none of a group, and no reference to one`
}
