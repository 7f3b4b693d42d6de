import { z } from 'zod'
import { INSTANT, instantMs } from '../../limit/instant.ts'
import { KINDS, wholeSegment } from '../../limit/parameters.ts'
import { type Issue, mustBe, nearest } from '../yaml/issue.ts'
import { bool, choice, crossField, distinct, duration, int } from './values.ts'
import { list, named, section, stringThat } from './values.ts'

const calls = int(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
const window = duration('100ms', '31d')

const isInstant = (text: string): boolean => !Number.isNaN(instantMs(text))
const instantOptions = mustBe('an instant such as 2027-01-31T00:00:00Z', (input) => {
  if (typeof input !== 'string') return false
  if (INSTANT.test(input)) return 'is not a valid date or time; check the day, the time and the offset'
  const withT = input.toUpperCase().replace(/\s+/, 'T').replace(/\s+/, '')
  const corrected = [withT, `${withT}Z`, `${withT}T00:00:00Z`].find(isInstant)
  return corrected && `must have a date, a "T", a time and an offset; write ${corrected}, or another offset`
})
const instant = z
  .string(instantOptions)
  .regex(INSTANT, { ...instantOptions, abort: true })
  .refine(isInstant, instantOptions)
  .transform(instantMs)

const change = section({
  announced: instant.describe('When callers can first read the change at respond: limits.'),
  from: instant.describe('When the change takes effect, also for calls already counted.'),
  limit: calls.describe('Maximum calls in any window from then on; 0 refuses all.'),
})
  .transform(({ announced, from, limit }) => ({ announcedAt: announced, fromAt: from, limit }))
  .describe('An announced change of the limit.')

function* orderConflicts(changes: readonly z.output<typeof change>[]): Generator<Issue> {
  let latestAt = -Infinity
  for (const [i, { announcedAt, fromAt }] of changes.entries()) {
    if (announcedAt > fromAt)
      yield { path: [i, 'announced'], message: 'is after "from"; announce a change before it takes effect' }
    const message = 'must be later than that of the change before it; write them in order'
    if (fromAt <= latestAt) yield { path: [i, 'from'], message }
    latestAt = Math.max(latestAt, fromAt)
  }
}

const keyPart = stringThat((part) => {
  if (part.startsWith(':')) return `is written without the colon; write ${part.slice(1)}`
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(part)
}, 'client, user, ip or a parameter’s name')
const keyParts = distinct(keyPart, 1, 'a list of the parts of a key, such as [client]')

const limit = section({
  per: keyParts.describe('Parts of the key that has its own counter: client, user, ip, path parameters.'),
  limit: calls.describe('Maximum calls in any window; 0 refuses all.'),
  window: window.describe('The length of the window; the limit holds for any start of the window.'),
  changes: list(change, 0, 'a list of announced changes')
    .superRefine(crossField(orderConflicts))
    .default([])
    .describe('Announced changes of the limit, in the order in which they take effect.'),
  shadow: bool.prefault(false).describe('true counts and reports but never refuses, to try a limit out.'),
})
  .transform(({ window, ...rest }) => ({ ...rest, windowMs: window }))
  .describe('A maximum of calls per window. It has the same counters on all its routes.')

export const limits = named(limit, 'a mapping of names to limits').describe(
  'The limits, by the names that routes use.',
)

const ownLimit = section({
  limit: calls.describe('Maximum calls of this client in any window; 0 refuses all.'),
  window: window.optional().describe('Replaces the window of the limit.'),
  until: instant.optional().describe('When this own limit ends; never by default.'),
})
  .transform(({ limit, window, until }) => ({
    limit,
    ...(window !== undefined && { windowMs: window }),
    ...(until !== undefined && { untilAt: until }),
  }))
  .describe('Replaces the limit for this client.')

export const ownLimits = z
  .record(z.string(), ownLimit, mustBe('a mapping of limits to their values for this client'))
  .default({})
  .describe('The client’s own limits, by the names of the limits that they replace.')

const KIND = `${KINDS.join(', ')} or a regular expression such as "[a-z]{2}[0-9]+"`
const error = 'is not the name of a parameter; write it as in routes, without the colon'

export const parameters = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, { error }),
    stringThat((kind) => kindIssue(kind) ?? true, KIND),
    mustBe('a mapping of path parameters to their kinds'),
  )
  .describe(
    'Kinds of the path parameters that limits count by; other values get 400: plain (default: letters, digits and -_:@~=), uuid, integer, or a regular expression for the whole segment.',
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

export const headers = section({
  draft: choice(['none', 'draft-10'])
    .default('none')
    .describe('draft-10 adds RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).'),
}).describe('Rate-limit header fields of responses, in addition to X-RateLimit-*.')

export const failures = section({
  limit: int(1, 1000).describe('Maximum failures of one address in any window.'),
  window: duration('1s', '1h').describe('The length of the window; the limit holds for any start of it.'),
})
  .transform(({ limit, window }) => ({ limit, windowMs: window }))
  .describe(
    'Limits failed authentications and unmatched requests of an address, per process; then 429. Without it, they are not limited.',
  )
