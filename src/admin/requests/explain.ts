import { METHODS as PARSED_METHODS } from 'node:http'
import { isIP } from 'node:net'
import { keptClaims } from '../../authenticate/token/kept-claims.ts'
import type { Config } from '../../config/config.ts'
import { corsOf, type CorsSettings } from '../../downstream/cors.ts'
import { describeMatch, matchReadings, type Reading, refuseReadings } from '../../downstream/readings.ts'
import { createRouter, matchesHost, matchRoute, ownerOf, type Params } from '../../downstream/router.ts'
import { ABSOLUTE, foldCase, loggableTarget, parseTarget, servedHosts } from '../../downstream/target.ts'
import type { Target } from '../../downstream/target.ts'
import { InvalidQuestion, methodNotAllowed, notFound, Refusal, teamUnavailable } from '../../errors.ts'
import { instant, instantMs } from '../../runtime/instant.ts'
import type { Quota } from '../../limit/quota.ts'
import type { CompiledLimit } from '../../policy/apply.ts'
import { showKey } from '../../policy/caller-keys.ts'
import { type Caller, type Facts, NO_FACTS } from '../../policy/facts.ts'
import type { Overrides } from '../../policy/overrides.ts'
import { secretParts } from '../../policy/parameter-kinds.ts'
import { quotaOf, reasonOf, upcomingChanges } from '../../policy/rule.ts'
import { digestOf, shortenDigest } from '../../policy/secret-values.ts'
import { type CompiledRoute, compileRoutes } from '../../policy/routes.ts'
import { createShowPath, type ShowPath } from '../../policy/shown-path.ts'
import { wordOf } from '../../policy/words.ts'
import { asList, type JsonObject, parseObject } from '../../runtime/json.ts'
import type { Explained, ExplainedLimit } from './explained.ts'
import type { RequestLine } from './operator-api.ts'

/** A route of the configuration, with its limits compiled. */
type ServedRoute = CompiledRoute<Config['routes'][number]>

const REQUEST = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/

/** Parses what `explain` is asked, with the sender as far as it is named; throws an InvalidQuestion. */
export function parseQuestion({ request, host, client, user, ip, at, headers, claims }: RequestLine) {
  const [, word = 'GET', where = ''] = REQUEST.exec(request.trim()) ?? []
  const method = word.toUpperCase()
  if (!PARSED_METHODS.includes(method))
    throw new InvalidQuestion(`"${word}" is not an HTTP method that the gateway parses.`)
  const slash = where.indexOf('/')
  const [, site = where.slice(0, slash), target = where.slice(slash)] = ABSOLUTE.exec(where) ?? []
  if (slash === -1)
    throw new InvalidQuestion('Which request? Write "[METHOD] [host]/path", such as "GET /v3/sync".')
  if (site !== '' && host !== undefined && host.toLowerCase() !== site.toLowerCase())
    throw new InvalidQuestion(`Which host, "${site}" or "${host}"? Give one of them.`)
  if (client === '' || user === '')
    throw new InvalidQuestion(`Which ${client === '' ? 'client' : 'user'}? Give its id.`)
  if (ip !== undefined && isIP(ip) === 0)
    throw new InvalidQuestion('The address must be an IP address such as 192.0.2.7 or 2001:db8::7.')
  const atMs = at === undefined ? Date.now() : instantMs(at)
  if (Number.isNaN(atMs))
    throw new InvalidQuestion('The instant must be ISO 8601 with offset, like 2027-01-31T00:00:00Z.')
  const path = target.startsWith('/') ? target : `/${target}`
  const given = parseNamed('claims', claims)
  const fields = new Map<string, readonly string[]>()
  for (const [name, value] of Object.entries(parseNamed('headers', headers)))
    fields.set(name.toLowerCase(), asList(value).map(String))
  /** An unknown address is empty. */
  const caller: Caller = { client, user, ip: ip ?? '', claims: keptClaims(given, Object.keys(given)) }
  const facts: Facts = { ...NO_FACTS, method, field: (name) => fields.get(name) }
  return { request: { method, host: site || host, target: path }, caller, facts, atMs }
}

function parseNamed(what: string, text = '{}'): JsonObject {
  const named = parseObject(text)
  if (named !== undefined) return named
  throw new InvalidQuestion(`The ${what} must be a JSON object such as {"name":"value"}.`)
}

/** What a limit has if the store was not asked. */
const UNCOUNTED = { used: null, remaining: null, part: null }

/**
 * Follows a request through a configuration as the gateway would, now or at the instant of the
 * question, without any I/O. Also returns the quotas of its limits; null for an unknown key.
 */
export function explain(config: Config, question: RequestLine, overrides?: Overrides) {
  const { request: asked, caller, facts, atMs } = parseQuestion(question)
  const request = { ...asked, host: asked.host ?? defaultHost(config) }
  const { method, host } = request
  const routes = compileRoutes(config.routes, { ...config, overrides })
  const parsed = parseTarget(request.target, [host], servedHosts(routes, config.listen.hosts))
  const target = parsed instanceof Refusal ? undefined : parsed
  const match = createRouter(routes, config.teams)
  const found = target && match(method, target.host, target.segments)
  const readings = target?.isAmbiguous === true ? matchReadings(match, method, target) : []
  const { route, params = {} } = found && 'route' in found ? found : {}
  const allow = found && 'allow' in found ? found.allow : undefined
  let refusal = parsed instanceof Refusal ? parsed : undefined
  refusal ??= readings instanceof Refusal ? readings : refuseReadings(readings)
  refusal ??= allow && methodNotAllowed(allow)
  if (route?.respond === 'unavailable') refusal ??= teamUnavailable()
  refusal ??= route ? route.refuseParams({ params }) : notFound()
  // What a team owns is matched only with its own routes.
  const owner = target && ownerOf(config.teams, target)
  const tried = routes.filter(({ team }) => team === (route ? route.team : owner))
  const index = route ? tried.indexOf(route) : tried.length
  const sent: Facts = { ...facts, route, params }
  const [origin] = facts.field('origin') ?? []
  // A preflight is answered by the settings of the request that it announces.
  const [announced] = (method === 'OPTIONS' && facts.field('access-control-request-method')) || []

  const quotas: (Quota | null)[] = []
  /** Explains a limit of the route, also one that is left out of the request. */
  function explainLimit(compiled: CompiledLimit): ExplainedLimit {
    const { limit, leftOutBy, lackingIn, keyOf, beginningOf, rulesFor } = compiled
    const { name, per, calendar, skipsMissing, counts, cost, isConcurrent } = limit
    /** The parts of the key that the question does not name. An unknown address is empty. */
    const absent = new Set(lackingIn(caller, sent))
    const isLacking = (part: string): boolean =>
      absent.has(part) || (caller.ip === '' && wordOf(part).from === 'connection')
    const lacking = per.filter(isLacking)
    const key = lacking.length === 0 ? (keyOf(caller, sent) as string) : null
    const rules = rulesFor(caller, key ?? beginningOf(caller, sent))
    const quota = quotaOf(limit, key ?? '', atMs, rules)
    quotas.push(key === null ? null : quota)
    const { limit: calls, windowMs, shadow, source } = quota
    return {
      name,
      limit: calls,
      shadow,
      per,
      lacking,
      ...(!isConcurrent && { windowMs }),
      ...(skipsMissing && { missing: 'skip' }),
      ...(calendar && { calendar }),
      ...(counts !== undefined && { counts }),
      ...(cost !== undefined && { cost }),
      leftOut: leftOutBy(caller, sent) ?? null,
      key: key === null ? null : showKey(config.prefix, limit, key),
      decidedBy: source,
      because: reasonOf(limit, source, atMs, rules),
      next: upcomingChanges(limit, atMs, rules)[0] ?? null,
      ...UNCOUNTED,
    }
  }

  const showPath = createShowPath(config.routes, config.parameters)
  const path = target && (showPath?.(target.path, route) ?? target.path)
  const shownTarget = showPath ? (path ?? showPath(loggableTarget(request.target))) : request.target
  const message = refusal && ((showPath && refusal.logged) ?? refusal.message)
  const explained: Explained = {
    at: instant(atMs),
    request: { ...request, target: shownTarget },
    path: path ?? null,
    readings: readings instanceof Refusal ? [] : readings.map((reading) => explainReading(reading, showPath)),
    refusal: refusal
      ? { status: refusal.status, code: refusal.code, message: message!, ...(allow && { allow }) }
      : null,
    route: route ? { ...explainRoute(route, config), index, params: showParams(params, config) } : null,
    cors: explainCors(
      target && corsOf(match(announced ?? method, target.host, target.segments), config.cors),
      origin,
    ),
    client: caller.client === undefined ? null : explainClient(caller.client, config),
    limits: route && !refusal ? route.compiled.map(explainLimit) : [],
    passedOver: tried
      .slice(0, target && route?.respond !== 'resource' ? index : 0)
      .map((route) => ({ match: route.match, because: passedOverBy(route, method, target!) })),
  }
  return { explained, quotas }
}

function explainReading({ path, found }: Reading<ServedRoute>, showPath?: ShowPath) {
  const route = found && 'route' in found ? found.route : undefined
  return { path: showPath?.(path, route) ?? path, leadsTo: describeMatch(found) }
}

/** Returns path parameters with secret values shortened, as limits count them. */
function showParams(params: Params, { parameters }: Config): Params {
  const secrets = secretParts(parameters)
  const shown = Object.entries(params).map(([name, value]) => [
    name,
    secrets.has(name) ? shortenDigest(digestOf(foldCase(value))) : value,
  ])
  return Object.fromEntries(shown) as Params
}

/**
 * Returns the host of a request without one: of `listen.hosts`, the first that no route names, else
 * the first; else localhost.
 */
function defaultHost({ routes }: Config): string {
  const hosts = routes.find(({ hosts }) => hosts !== undefined)?.hosts ?? []
  return hosts.find((host) => !routes.some((one) => one.host === host)) ?? hosts[0] ?? 'localhost'
}

function explainRoute(route: ServedRoute, config: Config) {
  const { match, authenticate, scope, respond, maxBody } = route
  const { tokens, par } = config
  const upstream = config.upstreams.find(({ name }) => name === route.upstream)
  const trust = { none: [], bearer: tokens, par: par ? [par] : [], authorization: [] }[authenticate]
  return {
    match,
    authenticate,
    issuers: trust.map(({ issuer }) => issuer),
    scope,
    upstream: upstream?.name ?? null,
    name: route.name ?? null,
    labels: route.labels ?? null,
    origins: upstream?.origins ?? [],
    respond: respond ?? null,
    maxBody,
    ...(route.team !== undefined && { team: route.team }),
    timeoutMs: upstream === undefined ? null : (route.timeoutMs ?? upstream.timeoutMs),
  }
}

function explainCors(cors: CorsSettings | undefined, origin: string | undefined): Explained['cors'] {
  if (cors === undefined) return null
  const isAllowed = origin !== undefined && (cors.origins.includes('*') || cors.origins.includes(origin))
  return { ...cors, allowed: origin === undefined ? null : isAllowed }
}

function explainClient(id: string, { clients, par }: Config) {
  const listed = clients.find(({ caller }) => caller === id)
  return {
    id,
    name: listed?.name ?? null,
    listed: listed !== undefined,
    mustBeListed: par?.unknownClients === 'refuse',
    requestObjectSigningAlg: listed?.requestObjectSigningAlg ?? null,
    authentication: listed?.authentication ?? null,
    pushed: listed?.pushed ?? null,
  }
}

function passedOverBy(route: ServedRoute, method: string, { host, segments }: Target): string {
  const found = matchRoute([route], method, host, segments)
  if (found === undefined)
    return matchesHost(route, host) ? 'matches another path' : `matches another host than ${host}`
  if ('allow' in found) return `allows ${found.allow.join(', ')}, not ${method}`
  return 'matches, but the path belongs to a route with "authenticate: par" or "authorization"'
}
