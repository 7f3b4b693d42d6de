import type { z } from 'zod'
import { parsePattern, type Pattern } from '../../downstream/router.ts'
import type { Issue } from '../yaml/issue.ts'
import { tlsFiles, certWithoutKey } from './listeners.ts'
import { fieldIssue, identityField, origin, tlsName } from './texts.ts'
import { atKey, choice, crossField, distinct, duration, exclusive, int } from './values.ts'
import { list, named, section, size, stringThat, text } from './values.ts'

const tls = section({
  ...tlsFiles,
  servername: tlsName.exactOptional().describe('The name expected in its certificate; by default its host.'),
})
  .superRefine(crossField(certWithoutKey))
  .transform((files) => ({ servername: undefined, ...files }))
  .describe('TLS to an https backend, with PEM files relative to this file.')

const backend = section({
  url: origin.optional().describe('The backend’s address: scheme, host and port.'),
  urls: list(origin, 1, 'a list of addresses such as http://10.0.0.1:4000')
    .optional()
    .describe('Instead of url: several addresses, used in turn; one that fails is skipped for a while.'),
  timeoutMs: duration('1ms', '1d')
    .prefault('30s')
    .describe('Maximum wait for the response’s head, and between bytes of its body; then 504.'),
  connectTimeoutMs: duration('1ms', '1h').prefault('2s').describe('Maximum wait for a new connection.'),
  maxConnections: int(1, 100_000)
    .prefault(256)
    .describe('Maximum connections to all its addresses together.'),
  tls: tls.optional(),
  errors: choice(['problem', 'oauth'])
    .optional()
    .describe('Format of the gateway’s errors: RFC 9457, or RFC 6749; by default oauth with a PAR route.'),
  identityHeaders: list(identityField, 0, 'a list of header fields')
    .default([])
    .describe('Fields that identify the caller to this upstream, accepted from listen.trustedProxies only.'),
})

function* addressConflicts(addresses: z.output<typeof backend>): Generator<Issue> {
  const { url, urls = [], tls } = addresses
  const first = url ?? urls[0]
  const message = 'is missing; write an address such as http://data.internal:4000, or "urls" for several'
  if (first === undefined) yield { path: ['url'], message }
  yield* exclusive(addresses, ['url', 'urls'])
  if (tls !== undefined && first?.startsWith('http:') === true)
    yield atKey('tls', 'applies only to https addresses; write https, or remove it')
  for (const [i, address] of urls.entries()) {
    if (urls.indexOf(address) < i)
      yield { path: ['urls', i], message: 'is a duplicate; remove one of the two' }
    else if (address.split(':')[0] !== urls[0]!.split(':')[0])
      yield { path: ['urls', i], message: 'differs from the first in scheme; write the same for all' }
  }
}

const upstream = backend
  .superRefine(crossField(addressConflicts))
  .transform(({ url, urls = [], ...rest }) => ({ ...rest, origins: url === undefined ? urls : [url] }))
  .describe('A backend.')

export const upstreams = named(upstream, 'a mapping of names to upstreams').describe('The backends, by name.')

const pattern = stringThat((match) => {
  const parsed = parsePattern(match)
  return typeof parsed !== 'string' || `is not a pattern: ${parsed}`
}, 'a pattern such as "POST /sync/:connection"')
const scope = stringThat((word) => /^[!#-[\]-~]+$/.test(word), 'one scope such as payments:read')
/** The default of `maxBody`: 10MB. */
const MAX_BODY = 10 * 1024 ** 2

const fields = section({
  match: pattern.describe('[METHOD[,METHOD]] [host]/path; ":name" is one segment, a last "*" the rest.'),
  upstream: text('the name of an upstream').optional().describe('The upstream that gets the requests.'),
  respond: choice(['limits'])
    .optional()
    .describe('Instead of upstream: limits shows callers their own limits, without counting a call.'),
  authenticate: choice(['none', 'bearer', 'par', 'authorization']).describe(
    'none is open to all, bearer requires an access token, par and authorization are for these two endpoints and their rules. No default.',
  ),
  scope: list(scope, 1, 'a list of scopes')
    .default([])
    .describe('Scopes that a token must all have, else 403; needs authenticate: bearer.'),
  limits: distinct(text('the name of a limit'), 0, 'a list of limits')
    .default([])
    .describe('The limits of a call: all are charged, or none. Headers report the first.'),
  maxBody: size('0B', '100GB').prefault('10MB').describe('Largest body of a request; a larger one gets 413.'),
  timeoutMs: duration('1ms', '1d').optional().describe('Instead of the upstream’s timeout, for this route.'),
})

/** Methods of the endpoints whose requests are checked, and their form in a pattern, where GET includes HEAD. */
const ENDPOINTS = {
  par: { methods: ['POST'], what: 'POST', write: 'POST' },
  authorization: { methods: ['GET', 'HEAD', 'POST'], what: 'GET and POST', write: 'GET,POST' },
}

function* routeConflicts(route: z.output<typeof fields>): Generator<Issue> {
  const { match, respond, authenticate, scope, limits, maxBody, timeoutMs } = route
  yield* exclusive(route, ['upstream', 'respond'])
  if (respond !== undefined) {
    const message = 'must be bearer, because callers may read only their own limits'
    const inapplicable = 'does not apply to "respond"; remove it'
    if (authenticate !== 'bearer') yield { path: ['authenticate'], message }
    if (limits.length > 0) yield atKey('limits', inapplicable)
    if (timeoutMs !== undefined) yield atKey('timeout', inapplicable)
  }
  if (scope.length > 0 && authenticate !== 'bearer')
    yield atKey('scope', 'applies only to "authenticate: bearer", as only tokens have scopes; remove it')
  if (authenticate === 'none' || authenticate === 'bearer') return
  const { methods, what, write } = ENDPOINTS[authenticate]
  const matched = (parsePattern(match) as Pattern).methods
  if (matched === undefined || [...matched].some((method) => !methods.includes(method))) {
    const message = `must match only ${what}; write "${write} ${match.replace(/^[A-Za-z,]+ +/, '')}"`
    yield { path: ['match'], message }
  }
  const reason = `does not apply to "authenticate: ${authenticate}"`
  if (limits.length > 0) yield atKey('limits', `${reason}, which is never limited; remove it`)
  if (maxBody !== MAX_BODY) yield atKey('maxBody', `${reason}; write par.maxBody`)
}

const route = fields
  .superRefine(crossField(routeConflicts))
  .transform((route) => ({ ...(parsePattern(route.match) as Pattern), timeoutMs: undefined, ...route }))
  .describe('What happens to the requests that match.')

export const routes = list(route, 1, 'a list of routes').describe('In order: the first match wins.')

export const headers = section({
  draft: choice(['none', 'draft-10'])
    .default('none')
    .describe('draft-10 adds RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).'),
  requestId: stringThat(fieldIssue, 'the name of a header field such as x-fapi-interaction-id')
    .default('X-Request-Id')
    .describe('The field of the request id, in requests and responses, such as x-fapi-interaction-id.'),
}).describe('Header fields of responses, in addition to X-RateLimit-*.')

export const failures = section({
  limit: int(1, 1000).describe('Maximum failures of one address in any window.'),
  windowMs: duration('1s', '1h').describe('The length of the window; the limit holds for any start of it.'),
}).describe(
  'Limits failed authentications and unmatched requests of an address, per process; then 429. Without it, they are not limited.',
)
