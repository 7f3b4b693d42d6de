import { z } from 'zod'
import { METHODS } from '../../downstream/router.ts'
import { createCalendar } from '../../limit/calendar.ts'
import { partOf } from '../../limit/rules/parts.ts'
import type { Condition } from '../../limit/rules/conditions.ts'
import { type Issue, mustBe } from '../yaml/issue.ts'
import { fieldIssue } from './fields.ts'
import { choice, crossField, distinct, duration, int, list, section, stringThat, text } from './values.ts'

export const calls = int(0, Number.MAX_SAFE_INTEGER, 'a whole number, 0 or more')
export const window = duration('100ms', '31d')

const keyPart = stringThat((part) => {
  if (part.startsWith(':')) return `is written without the colon; write ${part.slice(1)}`
  const [, of, name = ''] = /^(claim|header):(.+)$/is.exec(part) ?? []
  if (of === 'claim') return true
  return of === undefined ? /^[A-Za-z_][A-Za-z0-9_]*$/.test(part) : fieldIssue(name)
}, 'client, user, ip, route, token, claim:NAME, header:NAME or a parameter’s name')
export const keyParts = distinct(
  keyPart.transform(partOf),
  0,
  'a list of the parts of a key, such as [client]',
)

const isTimezone = (name: string): boolean => {
  try {
    return /^[A-Z]/i.test(name) && createCalendar('day', name) !== undefined
  } catch {
    return false
  }
}
const calendar = section({
  calendar: choice(['minute', 'hour', 'day', 'month']).describe('The period, which starts anew at its end.'),
  timezone: stringThat(isTimezone, 'a time zone of the IANA database, such as Europe/Lisbon')
    .default('UTC')
    .describe('The time zone in which the periods begin.'),
}).transform(({ calendar, timezone }) => ({ unit: calendar, timezone }))
const DURATION = 'a duration from 100ms to 31d (units ms, s, m, h, d)'
/** Returns the message for a number, which has no unit. */
const withoutUnit = (input: unknown) =>
  typeof input === 'number' && window.safeParse(input).error!.issues[0]!.message
export const windowOrCalendar = z.union(
  [window, calendar],
  mustBe(`${DURATION}, or { calendar: day }`, withoutUnit),
)

export const together = z.union([choice(['token']), window], mustBe(`${DURATION}, or token`, withoutUnit))

const claimed = section({
  claim: text('the name of a claim').describe('The claim that gives the limit.'),
  default: calls.describe('The limit of a token without the claim, or with another value.'),
  max: calls.optional().describe('Maximum of what a claim with a whole number gives.'),
  values: z
    .record(z.string(), calls, mustBe('a mapping of values of the claim to limits'))
    .optional()
    .describe('The limits by the values of the claim; without it, the claim is the limit, a whole number.'),
})
  .superRefine(
    crossField(function* ({ max, values, default: least }): Generator<Issue> {
      const message = 'cannot be combined with "values"; remove one of them'
      if (max !== undefined && values !== undefined) yield { path: ['max'], message, key: true }
      if (max !== undefined && max < least) yield { path: ['default'], message: 'is above "max"; write less' }
    }),
  )
  .transform(({ claim, default: limit, max, values }) => ({
    limit,
    claim: { name: claim, ...(max !== undefined && { max }), ...(values !== undefined && { values }) },
  }))
export const value = z.union(
  [calls, claimed],
  mustBe('a whole number, 0 or more, or { claim: NAME, default: 4 }'),
)

const SCALARS = [z.string(), z.number(), z.boolean()] as const
const WORD = 'a text, a number, true or false'
const fields = section({
  header: stringThat(fieldIssue, 'the name of a header field')
    .optional()
    .describe('The header field to compare, exactly.'),
  claim: text('the name of a claim')
    .optional()
    .describe('The claim of the token to compare; of a list, each item.'),
  method: z
    .null(mustBe('empty, as a method has no name; write { method, is: POST }'))
    .optional()
    .describe('Without a value: compares the method; GET includes HEAD.'),
  is: z
    .union(
      [...SCALARS, list(z.union(SCALARS, mustBe(WORD)), 1, 'a list of values')],
      mustBe(`present, absent, ip, ${WORD}, or a list of these`),
    )
    .describe('present, absent, ip (exactly one IP address), a value, or a list of values.'),
})
const SUBJECTS = ['header', 'claim', 'method'] as const

function* conditionConflicts(condition: z.output<typeof fields>): Generator<Issue> {
  const [of, other] = SUBJECTS.filter((key) => condition[key] !== undefined)
  if (of === undefined)
    yield { path: [], message: 'must have one of "header", "claim" and "method"; write one' }
  if (other !== undefined)
    yield {
      path: [other],
      message: `cannot be combined with "${of}"; write a list of two conditions`,
      key: true,
    }
  const unknown = of === 'method' && [condition.is].flat().find((word) => !METHODS.has(String(word)))
  if (unknown !== undefined && unknown !== false)
    yield { path: ['is'], message: `must be a method that routes can match; use ${[...METHODS].join(', ')}` }
}

const condition = fields
  .superRefine(crossField(conditionConflicts))
  .transform(({ header, claim, is }): Condition => {
    const of = header !== undefined ? 'header' : claim !== undefined ? 'claim' : 'method'
    const name = header?.toLowerCase() ?? claim ?? ''
    if (is === 'present' || is === 'absent' || is === 'ip') return { of, name, is }
    const words = [is].flat().map(String)
    return { of, name, is: of === 'method' && words.includes('GET') ? [...words, 'HEAD'] : words }
  })
export const conditions = z
  .union(
    [condition, list(condition, 1, 'a list of conditions')],
    mustBe('a condition such as { header: NAME, is: present }, or a list of them'),
  )
  .transform((conditions) => [conditions].flat())
