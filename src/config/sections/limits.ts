import { z } from 'zod'
import { instant } from '../compile/instant.ts'
import { duration, list, name, section, textThat, whole } from './values.ts'
import { must, mustSecretly } from '../yaml/wording.ts'

const calls = () => whole(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
const window = () => duration('100ms', '31d')

const change = section({
  announced: instant().describe('From when on callers are told of the change.'),
  from: instant().describe('From when on the change is in force.'),
  limit: calls().describe('Most calls in any window from then on.'),
})
  .transform(({ announced, from, limit }) => ({ announcedAt: announced, fromAt: from, limit }))
  .describe('An announced change of the limit.')

const limit = section({
  per: list(
    textThat(
      (part) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(part),
      'client, user, ip or a parameter’s name',
      (part) => (part.startsWith(':') ? `is written without the colon; write ${part.slice(1)}` : undefined),
    ),
    1,
    'a list of what a key is made of, such as [client]',
  ).describe('What is counted apart: client, user, ip or the name of a path parameter, in this order.'),
  limit: calls().describe('Most calls in any window; 0 refuses all.'),
  window: window().describe('The length of the window, wherever it starts.'),
  changes: list(change, 0, 'a list of announced changes')
    .default([])
    .describe('Announced changes of the limit, in the order in which they take effect.'),
  shadow: z
    .boolean(must('true or false'))
    .default(false)
    .describe('true counts and reports, and never refuses: to try a limit out beside a live one.'),
})
  .transform(({ window, ...rest }) => ({ ...rest, windowMs: window }))
  .describe('So many calls per window for each key.')

/** The limits, by name. */
export const limits = z
  .record(name(), limit, mustSecretly('a mapping of names to limits'))
  .describe('The limits, by name.')

const ownLimit = section({
  limit: calls().describe('Most calls of this client in any window; 0 refuses all.'),
  window: window().optional().describe('In place of the limit’s window.'),
  until: instant().optional().describe('Until when this holds; for good, unless set.'),
})
  .transform(({ window, until, ...rest }) => ({
    ...rest,
    ...(window !== undefined && { windowMs: window }),
    ...(until !== undefined && { untilAt: until }),
  }))
  .describe('What a limit is for this client, in place of what it is for others.')

/** What limits are for one client, by the names of the limits that they stand in for. */
export const ownLimits = z
  .record(z.string(), ownLimit, mustSecretly('a mapping of limits to what they are for this client'))
  .default({})
  .describe('Its own limits, by the names of the limits that they stand in for.')
