import { z } from 'zod'
import { INSTANT, instantMs } from '../../limit/instant.ts'
import { KINDS, wholeSegment } from '../../limit/parameters.ts'
import { type Issue, mustBe, nearest } from '../yaml/issue.ts'
import { bool, crossField, distinct, duration, int, list, named, section, stringThat } from './values.ts'

const calls = int(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
const window = duration('100ms', '31d')

const instantWording = mustBe('an instant such as 2027-01-31T00:00:00Z', (input) => {
  if (typeof input !== 'string') return undefined
  if (INSTANT.test(input)) return 'is no instant that there is; check the day, the time and the offset'
  const withT = input.toUpperCase().replace(/\s+/, 'T').replace(/\s+/, '')
  const meant = [withT, `${withT}Z`, `${withT}T00:00:00Z`].find((text) => !Number.isNaN(instantMs(text)))
  return (
    meant && `must have a date, a "T", a time and an offset; write ${meant}, or with the offset that is meant`
  )
})
const instant = z
  .string(instantWording)
  .regex(INSTANT, { ...instantWording, abort: true })
  .refine((text) => !Number.isNaN(instantMs(text)), instantWording)
  .transform(instantMs)

const change = section({
  announced: instant.describe('From when on callers can read the change at respond: limits.'),
  from: instant.describe('From when on the change is in force, for calls already counted, too.'),
  limit: calls.describe('Most calls in any window from then on; 0 refuses all.'),
})
  .transform(({ announced, from, limit }) => ({ announcedAt: announced, fromAt: from, limit }))
  .describe('An announced change of the limit.')

function* inOrder(changes: readonly z.output<typeof change>[]): Generator<Issue> {
  let latestAt = -Infinity
  for (const [i, { announcedAt, fromAt }] of changes.entries()) {
    if (announcedAt > fromAt)
      yield { path: [i, 'announced'], message: 'is after "from"; announce a change before it takes effect' }
    const message = 'must be later than that of the change before it; write them in order'
    if (fromAt <= latestAt) yield { path: [i, 'from'], message }
    latestAt = Math.max(latestAt, fromAt)
  }
}

const limit = section({
  per: distinct(
    stringThat((part) => {
      if (part.startsWith(':')) return `is written without the colon; write ${part.slice(1)}`
      return /^[A-Za-z_][A-Za-z0-9_]*$/.test(part)
    }, 'client, user, ip or a parameter’s name'),
    1,
    'a list of what a key is made of, such as [client]',
  ).describe('What has a counter of its own: a client, user, ip or path parameter, or a combination.'),
  limit: calls.describe('Most calls in any window; 0 refuses all.'),
  window: window.describe('The length of the window; the limit holds wherever a window starts.'),
  changes: list(change, 0, 'a list of announced changes')
    .superRefine(crossField(inOrder))
    .default([])
    .describe('Announced changes of the limit, in the order in which they take effect.'),
  shadow: bool.prefault(false).describe('true counts and reports but never refuses, to try a limit out.'),
})
  .transform(({ window, ...rest }) => ({ ...rest, windowMs: window }))
  .describe('A limit: so many calls per window. It has the same counters on all its routes.')

export const limits = named(limit, 'a mapping of names to limits').describe(
  'The limits, by the names that routes use.',
)

const ownLimit = section({
  limit: calls.describe('Most calls of this client in any window; 0 refuses all.'),
  window: window.optional().describe('Instead of the limit’s window.'),
  until: instant.optional().describe('Until when the client has this limit; for good by default.'),
})
  .transform(({ window, until, ...rest }) => ({
    ...rest,
    ...(window !== undefined && { windowMs: window }),
    ...(until !== undefined && { untilAt: until }),
  }))
  .describe('The limit of this client, instead of the one that others have.')

export const ownLimits = z
  .record(z.string(), ownLimit, mustBe('a mapping of limits to what they are for this client'))
  .default({})
  .describe('Limits of its own, by the names of the limits that they replace.')

const WHAT = `${KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`

export const parameters = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, {
      error: 'is not the name of a parameter; write it as routes do, without the colon',
    }),
    stringThat((kind) => kindProblem(kind) ?? true, WHAT),
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
