import { z } from 'zod'
import type { Mistake } from '../yaml/problem.ts'
import { must } from '../yaml/wording.ts'
import { checking, distinct, duration, flag, list, name, section, textThat, whole } from './values.ts'

const calls = () => whole(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
const window = () => duration('100ms', '31d')

const INSTANT = /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)$/

/** The epoch milliseconds of an ISO 8601 instant with its offset; NaN of anything else, days that no calendar has too. */
export function instantMs(text: string): number {
  const [, year, month, day] = INSTANT.exec(text) ?? []
  const isDay = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day)
  return isDay ? Date.parse(text) : Number.NaN
}

/** An instant of ISO 8601 with its offset → epoch milliseconds. */
function instant() {
  const wording = must('an instant such as 2027-01-31T00:00:00Z', (input) => {
    if (typeof input !== 'string') return undefined
    if (INSTANT.test(input)) return 'is no instant that there is; check the day, the time and the offset'
    const withT = input.toUpperCase().replace(/\s+/, 'T').replace(/\s+/, '')
    const meant = [withT, `${withT}Z`, `${withT}T00:00:00Z`].find((text) => !Number.isNaN(instantMs(text)))
    return (
      meant &&
      `must have a date, a "T", a time and an offset; write ${meant}, or with the offset that is meant`
    )
  })
  return z
    .string(wording)
    .regex(INSTANT, { ...wording, abort: true })
    .refine((text) => !Number.isNaN(instantMs(text)), wording)
    .transform(instantMs)
}

const change = section({
  announced: instant().describe('From when on callers are told of the change.'),
  from: instant().describe('From when on the change is in force.'),
  limit: calls().describe('Most calls in any window from then on.'),
})
  .transform(({ announced, from, limit }) => ({ announcedAt: announced, fromAt: from, limit }))
  .describe('An announced change of the limit.')

function* inOrder(changes: readonly z.output<typeof change>[]): Generator<Mistake> {
  let latestAt = -Infinity
  for (const [i, { announcedAt, fromAt }] of changes.entries()) {
    if (announcedAt > fromAt)
      yield { path: [i, 'announced'], message: 'is after "from"; announce a change before it takes effect' }
    if (fromAt <= latestAt)
      yield {
        path: [i, 'from'],
        message: 'must be later than that of the change before it; write them in order',
      }
    latestAt = Math.max(latestAt, fromAt)
  }
}

const limit = section({
  per: distinct(
    textThat((part) => {
      if (part.startsWith(':')) return `is written without the colon; write ${part.slice(1)}`
      return /^[A-Za-z_][A-Za-z0-9_]*$/.test(part)
    }, 'client, user, ip or a parameter’s name'),
    1,
    'a list of what a key is made of, such as [client]',
  ).describe('What is counted apart: client, user, ip or the name of a path parameter, in this order.'),
  limit: calls().describe('Most calls in any window; 0 refuses all.'),
  window: window().describe('The length of the window, wherever it starts.'),
  changes: list(change, 0, 'a list of announced changes')
    .superRefine(checking(inOrder))
    .default([])
    .describe('Announced changes of the limit, in the order in which they take effect.'),
  shadow: flag().prefault(false).describe('true counts and reports, and never refuses: to try a limit out.'),
})
  .transform(({ window, ...rest }) => ({ ...rest, windowMs: window }))
  .describe('So many calls per window for each key.')

/** The limits, in the order of the file. */
export const limits = z
  .record(name(), limit, must('a mapping of names to limits'))
  .transform((limits) => Object.entries(limits).map(([name, limit]) => ({ name, ...limit })))
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

/** The limits of one client, by the names of the limits that they replace. */
export const ownLimits = z
  .record(z.string(), ownLimit, must('a mapping of limits to what they are for this client'))
  .default({})
  .describe('Its own limits, by the names of the limits that they stand in for.')
