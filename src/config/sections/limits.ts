import { z } from 'zod'
import { UNITS_MS } from '../../limit/calendar.ts'
import { INSTANT, instantMs } from '../../limit/instant.ts'
import type { Limit } from '../../limit/limit.ts'
import { mayLack } from '../../limit/rules/parts.ts'
import { type Issue, mustBe } from '../yaml/issue.ts'
import { refusal, requestId } from './fields.ts'
import { calls, conditions, keyParts, together, value, window, windowOrCalendar } from './limit-rules.ts'
import { bool, choice, crossField, duration, int, list, named, section } from './values.ts'

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

const fields = section({
  per: keyParts.describe(
    'Parts of the key that has its own counter: client, user, ip, route, token, claim:NAME, header:NAME, path parameters; [] is one counter for all.',
  ),
  missing: choice(['refuse', 'skip'])
    .optional()
    .describe(
      'A request without the user, claim or header of "per" is refused (403, 400); skip leaves the limit out.',
    ),
  when: conditions.optional().describe('The limit applies only if all of these hold; a condition or a list.'),
  unless: conditions
    .optional()
    .describe('The limit is left out if one of these holds; a condition or a list.'),
  limit: value.describe(
    'Maximum calls in any window, or the claim of the token that gives it; 0 refuses all.',
  ),
  window: windowOrCalendar.describe(
    'The length of the window, which holds for any start of it; or the period of a calendar.',
  ),
  together: together
    .optional()
    .describe('Calls within this time of one that was counted, or with the same token, are part of it.'),
  count: choice(['all', 'success'])
    .default('all')
    .describe('success gives back a call that is answered with 400 or above, or not at all; for calendars.'),
  changes: list(change, 0, 'a list of announced changes')
    .superRefine(crossField(orderConflicts))
    .default([])
    .describe('Announced changes of the limit, in the order in which they take effect.'),
  onOutage: choice(['local', 'allow', 'deny']).optional().describe('Replaces store.onOutage for this limit.'),
  refusal: refusal.optional(),
  shadow: bool.prefault(false).describe('true counts and reports but never refuses, to try a limit out.'),
})

/** Yields settings of a limit that do not fit each other. */
function* limitConflicts(limit: z.output<typeof fields>): Generator<Issue> {
  const { per, missing, limit: value, window, together, count, changes, shadow } = limit
  const conflict = (key: keyof typeof limit, message: string): Issue => ({ path: [key], message, key: true })
  if (missing !== undefined && !per.some(mayLack))
    yield conflict('missing', 'applies only if "per" has user, a claim or a header; remove it')
  if (typeof value !== 'number' && changes.length > 0)
    yield conflict('changes', 'cannot be combined with a limit that a claim gives; remove one of them')
  if (typeof together === 'number' && typeof window === 'number' && together > window)
    yield { path: ['together'], message: 'is longer than "window"; write at most the same' }
  if (count === 'all') return
  if (typeof window === 'number') {
    const reason = 'a sliding window would admit calls too many when one is given back'
    yield conflict('count', `applies only to calendar windows, as ${reason}; write window: { calendar: … }`)
  }
  if (together !== undefined)
    yield conflict('count', 'cannot be combined with "together", whose calls are one; remove one of them')
  if (shadow) yield conflict('count', 'cannot be combined with "shadow"; remove one of them')
}

type Rule = Omit<Limit, 'name'>

const limit = fields
  .superRefine(crossField(limitConflicts))
  .transform(
    ({ limit, window, together, count, onOutage, missing, when, unless, refusal, ...rest }): Rule => ({
      ...rest,
      ...(typeof limit === 'number' ? { limit } : limit),
      ...(typeof window === 'number'
        ? { windowMs: window }
        : { windowMs: UNITS_MS[window.unit], calendar: window }),
      ...(together !== undefined && { together }),
      ...(count === 'success' && { countsSuccess: true }),
      ...(onOutage !== undefined && { onOutage }),
      ...(missing === 'skip' && { skipsMissing: true }),
      ...(when !== undefined && { when }),
      ...(unless !== undefined && { unless }),
      ...(refusal !== undefined && { refusal }),
    }),
  )
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

export const headers = section({
  draft: choice(['none', 'draft-10'])
    .default('none')
    .describe('draft-10 adds RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).'),
  requestId: requestId
    .default('X-Request-Id')
    .describe('The field of the request id, in requests and responses, such as x-fapi-interaction-id.'),
}).describe('Header fields of responses, in addition to X-RateLimit-*.')

export const failures = section({
  limit: int(1, 1000).describe('Maximum failures of one address in any window.'),
  window: duration('1s', '1h').describe('The length of the window; the limit holds for any start of it.'),
})
  .transform(({ limit, window }) => ({ limit, windowMs: window }))
  .describe(
    'Limits failed authentications and unmatched requests of an address, per process; then 429. Without it, they are not limited.',
  )
