import type { z } from 'zod'
import { parsePattern, type Pattern } from '../../downstream/router.ts'
import { HOP_BY_HOP, INSPECTED, normalizeFieldName } from '../../upstream/header-policy.ts'
import type { Issue } from '../yaml/issue.ts'
import { origin, tlsName } from './addresses.ts'
import { certWithoutKey, tlsFiles } from './store.ts'
import {
  crossField,
  choice,
  distinct,
  duration,
  int,
  list,
  named,
  section,
  size,
  text,
  stringThat,
} from './values.ts'

const tls = section({
  ...tlsFiles,
  servername: tlsName.optional().describe('The name expected in its certificate; by default its host.'),
})
  .superRefine(crossField(certWithoutKey))
  .describe('TLS to an https backend, with PEM files relative to this file.')

const fieldName = stringThat((field) => {
  const name = normalizeFieldName(field.toLowerCase())
  if (INSPECTED.has(name) || HOP_BY_HOP.has(name) || name.startsWith('content-'))
    return 'is read by the gateway itself; take it out'
  return /^[\w!#$%&'*+.^`|~-]+$/.test(field)
}, 'the name of a header field such as X-My-User')

const backend = section({
  url: origin.optional().describe('The backend’s address: scheme, host and port.'),
  urls: list(origin, 1, 'a list of addresses such as http://10.0.0.1:4000')
    .optional()
    .describe('Instead of url: several addresses, used in turn; one that fails is skipped for a while.'),
  timeout: duration('1ms', '1d')
    .prefault('30s')
    .describe('Longest wait for the head of the response, and between bytes of its body; then 504.'),
  connectTimeout: duration('1ms', '1h').prefault('2s').describe('Longest wait for a new connection.'),
  maxConnections: int(1, 100_000).prefault(256).describe('Most connections, to all its addresses together.'),
  tls: tls.optional(),
  identityHeaders: list(fieldName, 0, 'a list of header fields')
    .default([])
    .describe('Fields that identify the caller to this upstream, accepted from listen.trustedProxies only.'),
})

/** An upstream without an address or with two kinds of them, and addresses that do not go together. */
function* reachable({ url, urls = [], tls }: z.output<typeof backend>): Generator<Issue> {
  const first = url ?? urls[0]
  if (first === undefined) {
    const message = 'is missing; write an address such as http://data.internal:4000, or "urls" for several'
    yield { path: ['url'], message }
  } else if (url !== undefined && urls.length > 0)
    yield { path: ['urls'], message: 'stands beside "url"; take one of the two out', key: true }
  if (tls !== undefined && first?.startsWith('http:') === true) {
    const message = 'has no meaning for http addresses; write https, or take it out'
    yield { path: ['tls'], message, key: true }
  }
  for (const [i, one] of urls.entries()) {
    if (urls.indexOf(one) < i) yield { path: ['urls', i], message: `stands twice; take one out` }
    else if (one.split(':')[0] !== urls[0]!.split(':')[0])
      yield { path: ['urls', i], message: 'differs from the first one in scheme; write all alike' }
  }
}

const upstream = backend
  .superRefine(crossField(reachable))
  .transform(({ url, urls = [], timeout, connectTimeout, ...rest }) => ({
    origins: url === undefined ? urls : [url],
    timeoutMs: timeout,
    connectTimeoutMs: connectTimeout,
    ...rest,
  }))
  .describe('A backend.')

export const upstreams = named(upstream, 'a mapping of names to upstreams').describe('The backends, by name.')

/** 10MB: as much as none, at the PAR endpoint. */
const MAX_BODY = 10 * 1024 ** 2

const scope = stringThat((word) => /^[!#-[\]-~]+$/.test(word), 'one scope such as payments:read')

const fields = section({
  match: stringThat((match) => {
    const parsed = parsePattern(match)
    return typeof parsed !== 'string' || `is not a pattern: ${parsed}`
  }, 'a pattern such as "POST /sync/:connection"').describe(
    '[METHOD[,METHOD]] [host]/path; ":name" takes one segment, a last "*" the rest.',
  ),
  upstream: text('the name of an upstream').optional().describe('The upstream that gets the requests.'),
  respond: choice(['limits'])
    .optional()
    .describe('Instead of upstream: limits shows callers their own limits, which costs no call.'),
  authenticate: choice(['none', 'bearer', 'par', 'authorization']).describe(
    'none is open to all, bearer requires an access token, par and authorization are for these two endpoints and their rules. No default.',
  ),
  scope: list(scope, 1, 'a list of scopes')
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
  const mistake = (key: keyof Fields, message: string): Issue => ({ path: [key], message, key: true })
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
  const endpoint = authenticate === 'par' ? PAR : authenticate === 'authorization' ? AUTHORIZATION : undefined
  if (endpoint === undefined) return
  const { methods } = parsePattern(match) as Pattern
  if (methods === undefined || [...methods].some((method) => !endpoint.methods.includes(method))) {
    const path = match.replace(/^[A-Za-z,]+ +/, '')
    const message = `must take ${endpoint.what} alone, as its endpoint does; write "${endpoint.write} ${path}"`
    yield { path: ['match'], message }
  }
  const beside = `must be left out beside "authenticate: ${authenticate}"`
  if (limits.length > 0) yield mistake('limits', `${beside}: identity traffic is never limited`)
  if (maxBody !== MAX_BODY) yield mistake('maxBody', `${beside}; write par.maxBody`)
}

/** The methods of the endpoints whose requests are checked. */
const PAR = { methods: ['POST'], what: 'POST', write: 'POST' }
const AUTHORIZATION = { methods: ['GET', 'HEAD', 'POST'], what: 'GET and POST', write: 'GET,POST' }

const route = fields
  .superRefine(crossField(fitting))
  .transform(({ match, timeout, ...rest }) => ({
    ...(parsePattern(match) as Pattern),
    match,
    ...rest,
    timeoutMs: timeout,
  }))
  .describe('What happens to the requests that match.')

export const routes = list(route, 1, 'a list of routes').describe('In order: the first match wins.')
