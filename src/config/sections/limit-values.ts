import { z } from 'zod'
import { isRoutable, ROUTABLE } from '../../downstream/pattern.ts'
import { createCalendar, DAYS, UNITS_MS } from '../../policy/calendar.ts'
import { formsOf, nameIn, partOf, wordOf, WRITTEN_PART } from '../../policy/words.ts'
import type { Condition } from '../../policy/conditions.ts'
import { asList } from '../../runtime/json.ts'
import { issueAt, mustBe, nearest } from '../yaml/issue.ts'
import { countedFieldIssue } from './texts.ts'
import { atKey, choice, distinct, duration, exclusive } from './values.ts'
import { int, list, section, stringThat, text } from './values.ts'

export const calls = int(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
export const window = duration('100ms', '31d')

/** Returns the mistake of a part that is similar to a word, such as `haeder:X-Key`; false if it is similar to none. */
function misspeltWord(part: string): string | false {
  const forms = formsOf()
  const similar = nearest(
    part.split(':', 1)[0]!,
    forms.map((form) => form.split(':', 1)[0]!),
  )
  const form = similar && forms.find((form) => form.split(':', 1)[0] === similar)
  return form !== undefined && form !== '' && `is not a part of a key; did you mean ${form}?`
}

const keyPart = stringThat(
  (part) => {
    if (part.startsWith(':')) return `is written without the colon; write ${part.slice(1)}`
    if (!WRITTEN_PART.test(part)) return misspeltWord(part)
    const counted = partOf(part)
    return wordOf(counted).from !== 'header' || countedFieldIssue(nameIn(counted))
  },
  `${formsOf().join(', ')} or a parameter`,
).transform(partOf)
export const keyParts = distinct(keyPart, 0, 'a list of the parts of a key, such as [client]')

const isTimezone = (name: string): boolean => {
  try {
    return /^[A-Z]/i.test(name) && createCalendar({ unit: 'day', timezone: name }) !== undefined
  } catch {
    return false
  }
}
const timezone = stringThat(isTimezone, 'an IANA time zone such as Europe/Lisbon')
const calendar = section(
  {
    calendar: choice(['minute', 'hour', 'day', 'week', 'month', 'quarter', 'year']),
    timezone: timezone.default('UTC'),
    firstDay: choice(DAYS).exactOptional(),
  },
  function* ({ calendar, firstDay }) {
    if (firstDay !== undefined && calendar !== 'week')
      yield atKey('firstDay', 'applies only to weeks; remove it, or write calendar: week')
  },
).transform(({ calendar: unit, timezone, firstDay = 'monday' }) => ({
  windowMs: UNITS_MS[unit],
  calendar: { unit, timezone, ...(unit === 'week' && { firstDay }) },
}))

const DURATION = 'a duration from 100ms to 31d (units ms, s, m, h, d)'
export const WINDOW = `${DURATION}, or { calendar: day }`
const sliding = window.transform((windowMs) => ({ windowMs }))
export const windowOrCalendar = z.union([sliding, calendar], mustBe(WINDOW))

export const together = z.union([choice(['token']), window], mustBe(`${DURATION}, or token`))

const claimed = section(
  {
    claim: text('the name of a claim'),
    default: calls,
    max: calls.exactOptional(),
    values: z.record(z.string(), calls, mustBe('a mapping of values to limits')).exactOptional(),
  },
  function* (claimed) {
    const { default: least, max = Infinity } = claimed
    yield* exclusive(claimed, ['values', 'max'])
    if (least > max) yield issueAt(['default'], 'is above "max"; write less')
  },
).transform(({ claim: name, default: limit, ...rest }) => ({ limit, claim: { name, ...rest } }))
const fixed = calls.transform((limit) => ({ limit }))
const VALUE = 'a whole number, 0 or more, or { claim: NAME, default: 4 }'
export const value = z.union([fixed, claimed], mustBe(VALUE))

const SCALARS = [z.string(), z.number(), z.boolean()] as const
const WORD = 'a text, a number, true or false'
const SUBJECTS = ['header', 'claim', 'method'] as const
const condition = section(
  {
    header: stringThat(countedFieldIssue, 'the name of a header field').optional(),
    claim: text('the name of a claim').optional(),
    method: z.null(mustBe('empty, as a method has no name; write { method, is: POST }')).optional(),
    is: z.union(
      [...SCALARS, list(z.union(SCALARS, mustBe(WORD)), 1, 'a list of values')],
      mustBe(`present, absent, ip, ${WORD}, or a list of these`),
    ),
  },
  function* (condition) {
    const of = SUBJECTS.find((key) => condition[key] !== undefined)
    if (of === undefined) yield issueAt([], 'must have one of "header", "claim" and "method"; write one')
    yield* exclusive(condition, SUBJECTS)
    const isUnknown = asList(condition.is).some((word) => !isRoutable(String(word)))
    if (of === 'method' && isUnknown)
      yield issueAt(['is'], `must be a method that routes can match; use ${ROUTABLE}`)
  },
).transform(({ header, claim, is }): Condition => {
  const of = header !== undefined ? 'header' : claim !== undefined ? 'claim' : 'method'
  const name = header?.toLowerCase() ?? claim ?? ''
  if (is === 'present' || is === 'absent' || is === 'ip') return { of, name, is }
  const words = asList(is).map(String)
  return { of, name, is: of === 'method' && words.includes('GET') ? [...words, 'HEAD'] : words }
})
const several = list(condition, 1, 'a list of conditions')
const CONDITIONS = 'a condition such as { header: NAME, is: present }, or a list of them'
export const conditions = z.union([condition, several], mustBe(CONDITIONS)).transform(asList)
