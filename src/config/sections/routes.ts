import type { z } from 'zod'
import { parsePattern, type Pattern } from '../../downstream/router.ts'
import type { Issue } from '../yaml/issue.ts'
import { origin, tlsName } from './addresses.ts'
import { identityField } from './fields.ts'
import { certWithoutKey, tlsFiles } from './store.ts'
import { choice, crossField, distinct, duration, int } from './values.ts'
import { list, named, section, size, stringThat, text } from './values.ts'

const tls = section({
  ...tlsFiles,
  servername: tlsName.optional().describe('The name expected in its certificate; by default its host.'),
})
  .superRefine(crossField(certWithoutKey))
  .describe('TLS to an https backend, with PEM files relative to this file.')

const backend = section({
  url: origin.optional().describe('The backend’s address: scheme, host and port.'),
  urls: list(origin, 1, 'a list of addresses such as http://10.0.0.1:4000')
    .optional()
    .describe('Instead of url: several addresses, used in turn; one that fails is skipped for a while.'),
  timeout: duration('1ms', '1d')
    .prefault('30s')
    .describe('Maximum wait for the response’s head, and between bytes of its body; then 504.'),
  connectTimeout: duration('1ms', '1h').prefault('2s').describe('Maximum wait for a new connection.'),
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

function* addressConflicts({ url, urls = [], tls }: z.output<typeof backend>): Generator<Issue> {
  const first = url ?? urls[0]
  const message = 'is missing; write an address such as http://data.internal:4000, or "urls" for several'
  if (first === undefined) yield { path: ['url'], message }
  if (url !== undefined && urls.length > 0)
    yield { path: ['urls'], message: 'cannot be combined with "url"; remove one of them', key: true }
  if (tls !== undefined && first?.startsWith('http:') === true)
    yield { path: ['tls'], message: 'applies only to https addresses; write https, or remove it', key: true }
  for (const [i, address] of urls.entries()) {
    if (urls.indexOf(address) < i)
      yield { path: ['urls', i], message: 'is a duplicate; remove one of the two' }
    else if (address.split(':')[0] !== urls[0]!.split(':')[0])
      yield { path: ['urls', i], message: 'differs from the first in scheme; write the same for all' }
  }
}

const upstream = backend
  .superRefine(crossField(addressConflicts))
  .transform(({ url, urls = [], timeout, connectTimeout, ...rest }) => {
    const origins = url === undefined ? urls : [url]
    return { ...rest, origins, timeoutMs: timeout, connectTimeoutMs: connectTimeout }
  })
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
  timeout: duration('1ms', '1d').optional().describe('Instead of the upstream’s timeout, for this route.'),
})

type Fields = z.output<typeof fields>

/** Methods of the endpoints whose requests are checked, and their form in a pattern, where GET includes HEAD. */
const ENDPOINTS = {
  par: { methods: ['POST'], what: 'POST', write: 'POST' },
  authorization: { methods: ['GET', 'HEAD', 'POST'], what: 'GET and POST', write: 'GET,POST' },
}

/** Yields settings that do not fit the route's kind of response or authentication. */
function* routeConflicts(route: Fields): Generator<Issue> {
  const { match, upstream, respond, authenticate, scope, limits, maxBody, timeout } = route
  const conflict = (key: keyof Fields, message: string): Issue => ({ path: [key], message, key: true })
  if (respond !== undefined) {
    const message = 'must be bearer, because callers may read only their own limits'
    const inapplicable = 'does not apply to "respond"; remove it'
    if (upstream) yield conflict('respond', 'cannot be combined with "upstream"; remove one of them')
    if (authenticate !== 'bearer') yield { path: ['authenticate'], message }
    if (limits.length > 0) yield conflict('limits', inapplicable)
    if (timeout !== undefined) yield conflict('timeout', inapplicable)
  }
  if (scope.length > 0 && authenticate !== 'bearer')
    yield conflict('scope', 'applies only to "authenticate: bearer", as only tokens have scopes; remove it')
  if (authenticate === 'none' || authenticate === 'bearer') return
  const { methods, what, write } = ENDPOINTS[authenticate]
  const matched = (parsePattern(match) as Pattern).methods
  if (matched === undefined || [...matched].some((method) => !methods.includes(method))) {
    const message = `must match only ${what}; write "${write} ${match.replace(/^[A-Za-z,]+ +/, '')}"`
    yield { path: ['match'], message }
  }
  const reason = `does not apply to "authenticate: ${authenticate}"`
  if (limits.length > 0) yield conflict('limits', `${reason}, which is never limited; remove it`)
  if (maxBody !== MAX_BODY) yield conflict('maxBody', `${reason}; write par.maxBody`)
}

const route = fields
  .superRefine(crossField(routeConflicts))
  .transform(({ timeout, ...rest }) => {
    return { ...(parsePattern(rest.match) as Pattern), ...rest, timeoutMs: timeout }
  })
  .describe('What happens to the requests that match.')

export const routes = list(route, 1, 'a list of routes').describe('In order: the first match wins.')
