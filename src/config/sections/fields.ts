import { z } from 'zod'
import { decideAction, HOP_BY_HOP, INSPECTED, normalizeFieldName } from '../../upstream/header-policy.ts'
import { type Issue, mustBe } from '../yaml/issue.ts'
import { crossField, int, section, stringThat } from './values.ts'

const NAME = /^[\w!#$%&'*+.^`|~-]+$/
const error = 'is not a name of a header field; write one such as authorization'
const anyField = z.string().regex(NAME, { error })
const isValue = (value: string): boolean => /^[!-~](?:[ -~]*[!-~])?$/.test(value)
const fieldValue = stringThat(isValue, 'a header field’s value: printable ASCII without blanks around it')

/** Header fields to send. */
export const headerFields = z.record(
  anyField,
  fieldValue,
  mustBe('a mapping of header fields to their values'),
)

/** Fields that the gateway sets in responses. */
const SET_BY_GATEWAY = /^(?:x-)?ratelimit(?:-|$)|^(?:retry-after|cache-control|content-length|date)$/
const isRead = (name: string): boolean => INSPECTED.has(name) || HOP_BY_HOP.has(name)

/** Schema of the field in which the gateway names the caller to the upstream. */
export const identityField = stringThat((field) => {
  const name = normalizeFieldName(field.toLowerCase())
  if (isRead(name) || name.startsWith('content-')) return 'is read by the gateway itself; remove it'
  return NAME.test(field)
}, 'the name of a header field such as X-My-User')

/** Checks a field for use by limits or as the request id. Returns the mistake, false for an invalid name, or true. */
export function fieldIssue(field: string): boolean | string {
  const name = field.toLowerCase()
  if (isRead(name) || decideAction(name) !== 'keep' || SET_BY_GATEWAY.test(name))
    return 'is a field that the gateway itself reads, sets or drops; name another'
  return NAME.test(name)
}

/** The field of the request id. */
export const requestId = stringThat(fieldIssue, 'the name of a header field such as x-fapi-interaction-id')

const body = z.union(
  [z.string(), z.record(z.string(), z.unknown()), z.array(z.unknown())],
  mustBe('a text; or a mapping or a list, sent as JSON'),
)

const fields = section({
  status: int(400, 599).prefault(429).describe('The status.'),
  headers: headerFields.default({}).describe('Header fields to add. Rate-limit fields cannot be changed.'),
  body: body
    .optional()
    .describe(
      'A mapping or list is sent as application/json, a text as text/plain, unless headers has a Content-Type.',
    ),
})

function* refusalConflicts({ headers, body }: z.output<typeof fields>): Generator<Issue> {
  const names = Object.keys(headers)
  for (const [i, name] of names.entries()) {
    const lower = name.toLowerCase()
    const path = ['headers', name]
    if (SET_BY_GATEWAY.test(lower) || HOP_BY_HOP.has(lower))
      yield { path, message: 'is set by the gateway itself; remove it', key: true }
    else if (lower === 'content-type' && body === undefined)
      yield { path, message: 'applies only to a "body"; write one, or remove it', key: true }
    else if (names.findIndex((other) => other.toLowerCase() === lower) < i)
      yield { path, message: 'is a duplicate; remove one of the two', key: true }
  }
}

/** The reply to a refused call. */
export const refusal = fields
  .superRefine(crossField(refusalConflicts))
  .transform(({ status, headers, body }) => {
    if (body === undefined) return { status, headers }
    const isText = typeof body === 'string'
    const contentType = isText ? 'text/plain; charset=utf-8' : 'application/json'
    const hasType = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type')
    const text = isText ? body : JSON.stringify(body)
    return { status, headers, body: text, ...(!hasType && { contentType }) }
  })
  .describe('Replaces the status and the body of refused calls; the rate-limit fields stay.')
