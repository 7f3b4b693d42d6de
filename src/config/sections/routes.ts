import { z } from 'zod'
import { covers, parsePattern, type Pattern } from '../../downstream/pattern.ts'
import { acceptsKeys, acceptsTokens } from '../../downstream/router.ts'
import { parametersOf } from '../../policy/parameter-kinds.ts'
import { wordOf } from '../../policy/words.ts'
import { type Issue, issueAt, mustBe, oneOf } from '../yaml/issue.ts'
import { routeCors } from './cors.ts'
import { cost } from './costs.ts'
import { tlsFiles, certWithoutKey } from './listeners.ts'
import { routeLabels, routeName } from './metrics.ts'
import { backendAddress, callerField, fieldIssue, hostValue, identityField, tlsName } from './texts.ts'
import { atKey, BEFORE_URL, bool, choice, distinct, duration, exclusive, int } from './values.ts'
import { list, named, section, separable, size, stringThat, text } from './values.ts'

const tls = section({ ...tlsFiles, servername: tlsName.optional() }, certWithoutKey)

const isSecure = ({ origin }: { readonly origin: string }): boolean => origin.startsWith('https:')

const upstream = section(
  {
    url: backendAddress.optional(),
    urls: separable(
      backendAddress,
      1,
      'a list of addresses such as http://10.0.0.1:4000',
      BEFORE_URL,
    ).optional(),
    host: hostValue.optional(),
    maxHeaderSize: size('1kB', '1MB').prefault('64kB'),
    timeoutMs: duration('1ms', '1d').prefault('30s'),
    connectTimeoutMs: duration('1ms', '1h').prefault('2s'),
    maxConnections: int(1, 100_000).prefault(256),
    tls: tls.optional(),
    errors: choice(['problem', 'oauth']).optional(),
    identityHeaders: list(identityField, 0, 'a list of header fields').default([]),
    callerHeaders: list(callerField, 0, 'a list of header fields').default([]),
  },
  function* (addresses) {
    const { url, urls = [], tls, identityHeaders, callerHeaders } = addresses
    const first = url ?? urls[0]
    if (first === undefined)
      yield issueAt(['url'], 'is missing; write an address such as http://data.internal:4000, or "urls"')
    yield* exclusive(addresses, ['url', 'urls'])
    for (const [i, address] of urls.entries()) {
      const isRepeated = urls.findIndex((one) => one.origin === address.origin) < i
      if (isRepeated) yield issueAt(['urls', i], 'is listed twice; remove one')
      else if (address.path !== urls[0]!.path)
        yield issueAt(['urls', i], 'differs from the first in its path; write the same for all')
    }
    if (tls !== undefined && first !== undefined && !isSecure(first))
      yield atKey('tls', 'applies only to https addresses; write https, or remove it')
    for (const [i, field] of callerHeaders.entries())
      if (identityHeaders.some((one) => one.toLowerCase() === field.toLowerCase()))
        yield issueAt(['callerHeaders', i], 'is in identityHeaders, too; keep one of them')
    const other = urls.findIndex((address) => isSecure(address) !== isSecure(urls[0]!))
    if (other !== -1)
      yield issueAt(['urls', other], 'differs from the first in scheme; write the same for all')
  },
).transform(({ url, urls = url === undefined ? [] : [url], ...rest }) => {
  const [first] = urls
  return { ...rest, origins: urls.map(({ origin }) => origin), path: first?.path ?? '' }
})

export const upstreams = named(upstream, 'a mapping of names to upstreams')

const pattern = stringThat((match) => {
  const parsed = parsePattern(match)
  if (typeof parsed === 'string') return `is not a pattern: ${parsed}`
  const hiding = parametersOf(parsed).find((name) => wordOf(name).from !== 'path')
  if (hiding === undefined) return true
  return `is not a pattern: ":${hiding}" would hide the caller's own ${hiding} in a limit's "per"; choose another name`
}, 'a pattern such as "POST /sync/:connection"')
const scope = stringThat((word) => /^[!#-[\]-~]+$/.test(word), 'one scope such as payments:read')
/** The default of `maxBody`: 10MB. */
const MAX_BODY = 10 * 1024 ** 2

/**
 * Methods of the endpoints whose requests are checked, as in a pattern, where GET includes HEAD.
 */
const CHECKED_METHODS = { par: 'POST', authorization: 'GET,POST' }

/** Methods that have a body only with `body: true`. */
const WITHOUT_BODY = ['GET', 'HEAD', 'OPTIONS']

const WAYS = ['none', 'bearer', 'key', 'par', 'authorization'] as const
const AUTHENTICATION = oneOf(['none', 'bearer', 'key', '[bearer, key]', 'par', 'authorization'])
const both = distinct(choice(['bearer', 'key']), 1, AUTHENTICATION).transform((ways) =>
  ways.length === 2 ? ('bearer or key' as const) : ways[0]!,
)
const authenticate = z.union([z.enum(WAYS), both], mustBe(AUTHENTICATION))

/** Returns the ways in which the callers of a route may authenticate, as the file writes them. */
export const writtenWays = (ways: z.output<typeof authenticate>): string =>
  ways === 'bearer or key' ? '[bearer, key]' : ways

const route = section(
  {
    match: pattern,
    upstream: text('the name of an upstream').optional(),
    respond: choice(['limits', 'health']).optional(),
    authenticate,
    scope: list(scope, 1, 'a list of scopes').default([]),
    limits: distinct(text('the name of a limit'), 0, 'a list of limits').default([]),
    cost: cost.optional(),
    maxBody: size('0B', '100GB').prefault('10MB'),
    body: bool.prefault(false),
    cors: routeCors.optional(),
    timeoutMs: duration('1ms', '1d').optional(),
    upgrade: choice(['websocket']).optional(),
    name: routeName.optional(),
    labels: routeLabels.optional(),
  },
  function* (route) {
    const { match, respond, authenticate, scope, limits, maxBody, body, timeoutMs, cors, upgrade } = route
    yield* exclusive(route, ['upstream', 'respond'])
    const isChecked = authenticate === 'par' || authenticate === 'authorization'
    const isAnswered = respond !== undefined
    const unused = (key: string): Issue =>
      atKey(
        key,
        isAnswered
          ? `does not apply to "respond: ${respond}"; remove it`
          : `does not apply to "authenticate: ${writtenWays(authenticate)}"; remove it`,
      )
    if (respond === 'limits' && !acceptsTokens(route) && !acceptsKeys(route))
      yield issueAt(['authenticate'], 'must be bearer or key, because callers may read only their own limits')
    if (respond === 'health' && authenticate !== 'none')
      yield issueAt(['authenticate'], 'must be none, because what probes the gateway has no token')
    if (limits.length > 0 && (isChecked || isAnswered)) yield unused('limits')
    if (timeoutMs !== undefined && isAnswered) yield unused('timeout')
    if (scope.length > 0 && authenticate !== 'bearer') yield unused('scope')
    if (maxBody !== MAX_BODY && isChecked) yield unused('maxBody')
    if (body && (isChecked || isAnswered)) yield unused('body')
    if (cors !== undefined && isChecked) yield unused('cors')
    const { methods: matched } = parsePattern(match) as Pattern
    if (body && matched !== undefined && !WITHOUT_BODY.some((method) => matched.has(method)))
      yield atKey('body', 'applies to GET, HEAD and OPTIONS, which the route does not match; remove it')
    if (upgrade && (isChecked || isAnswered)) yield unused('upgrade')
    else if (upgrade && matched?.has('GET') === false)
      yield atKey('upgrade', 'applies to GET, which the route does not match; remove it')
    if (!isChecked) return
    const methods = CHECKED_METHODS[authenticate]
    if (!covers(parsePattern(`${methods} /*`) as Pattern, parsePattern(match) as Pattern)) {
      const path = match.replace(/^[A-Za-z,]+ +/, '')
      yield issueAt(['match'], `must match only ${methods.replace(',', ' and ')}; write "${methods} ${path}"`)
    }
  },
).transform((route) => ({ ...(parsePattern(route.match) as Pattern), ...route }))

export const routes = list(route, 1, 'a list of routes')

export const headers = section({
  draft: choice(['none', 'draft-10', 'draft-11']).default('none'),
  requestId: stringThat(fieldIssue, 'the name of a header field').default('X-Request-Id'),
})

export const failures = section({ limit: int(1, 1000), windowMs: duration('1s', '1h') })
