import type { z } from 'zod'
import { parsePattern, type Pattern } from '../../downstream/router.ts'
import type { Mistake } from '../yaml/problem.ts'
import { checkWhole, choice, distinct, duration, list, section, size, text, textWhere } from './values.ts'

/** 10MB: as much as none, at the PAR endpoint. */
const MAX_BODY = 10 * 1024 ** 2

function scope() {
  return textWhere((word) => /^[!#-[\]-~]+$/.test(word), 'one scope such as payments:read')
}

const fields = section({
  match: textWhere((match) => {
    const parsed = parsePattern(match)
    return typeof parsed !== 'string' || `is not a pattern: ${parsed}`
  }, 'a pattern such as "POST /sync/:connection"').describe(
    '[METHOD[,METHOD]] [host]/path; ":name" takes one segment, a last "*" the rest.',
  ),
  upstream: text('the name of an upstream').optional().describe('The upstream that gets the requests.'),
  respond: choice(['limits'])
    .optional()
    .describe('Instead of upstream: limits shows callers their own limits, which costs no call.'),
  authenticate: choice(['none', 'bearer', 'par']).describe(
    'none is open to all, bearer requires an access token, par is for the PAR endpoint and its rules. No default.',
  ),
  scope: list(scope(), 1, 'a list of scopes')
    .default([])
    .describe('Scopes that a token must have, all of them, else 403; needs authenticate: bearer.'),
  limits: distinct(text('the name of a limit'), 0, 'a list of limits')
    .default([])
    .describe('The limits of a call: all are charged, or none. Headers report the first.'),
  maxBody: size('0B', '100GB').prefault('10MB').describe('Largest body of a request; a larger one gets 413.'),
  timeout: duration('1ms', '1d').optional().describe('Instead of the upstream’s timeout, for this route.'),
})

type Fields = z.output<typeof fields>

/** What goes with one kind of answer or of authentication alone. */
function* fitting({ match, upstream, respond, authenticate, scope, limits, maxBody, timeout }: Fields) {
  const mistake = (key: keyof Fields, message: string): Mistake => ({ path: [key], message, key: true })
  if (respond === undefined) {
    if (upstream === undefined)
      yield mistake('upstream', 'is missing; write the name of an upstream, or "respond: limits"')
  } else {
    if (upstream !== undefined) yield mistake('respond', 'stands beside "upstream"; take one of the two out')
    if (authenticate !== 'bearer') {
      const message = 'must be bearer, because a caller may read its own limits alone'
      yield { path: ['authenticate'], message }
    }
    if (limits.length > 0)
      yield mistake('limits', 'must be left out beside "respond": to read one’s limits costs no call')
    if (timeout !== undefined)
      yield mistake('timeout', 'must be left out beside "respond": no upstream is asked')
  }
  if (scope.length > 0 && authenticate !== 'bearer')
    yield mistake(
      'scope',
      'goes with "authenticate: bearer" alone, since only tokens have scopes; take it out',
    )
  if (authenticate !== 'par') return
  const { methods } = parsePattern(match) as Pattern
  if (!(methods?.size === 1 && methods.has('POST'))) {
    const path = match.replace(/^[A-Za-z,]+ +/, '')
    const message = `must take POST alone, because a pushed authorisation request is one; write "POST ${path}"`
    yield { path: ['match'], message }
  }
  if (limits.length > 0)
    yield mistake('limits', 'must be left out beside "authenticate: par": identity traffic is never limited')
  if (maxBody !== MAX_BODY)
    yield mistake('maxBody', 'must be left out beside "authenticate: par"; write par.maxBody')
}

const route = fields
  .superRefine(checkWhole(fitting))
  .transform(({ match, timeout, ...rest }) => ({
    ...(parsePattern(match) as Pattern),
    match,
    ...rest,
    timeoutMs: timeout,
  }))
  .describe('What happens to the requests that match.')

/** The routes, in the order of matching. */
export const routes = list(route, 1, 'a list of routes').describe('In order: the first match wins.')
