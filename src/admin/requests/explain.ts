import type { Config } from '../../config/config.ts'
import { corsOf } from '../../downstream/cors.ts'
import { describeMatch, matchReadings, type Reading, refuseReadings } from '../../downstream/readings.ts'
import { matchesHost, matchesPath, METHODS } from '../../downstream/pattern.ts'
import { createRouter, ownerOf, type Params } from '../../downstream/router.ts'
import { foldCase, loggableTarget, parseTarget, servedHosts } from '../../downstream/target.ts'
import type { Target } from '../../downstream/target.ts'
import { methodNotAllowed, notFound, Refusal, teamUnavailable } from '../../errors.ts'
import { instant } from '../../runtime/instant.ts'
import type { Quota } from '../../limit/quota.ts'
import type { CompiledLimit } from '../../policy/apply.ts'
import { showKey } from '../../policy/caller-keys.ts'
import type { Facts } from '../../policy/facts.ts'
import type { Overrides } from '../../policy/overrides.ts'
import { secretParts } from '../../policy/parameter-kinds.ts'
import { quotaOf, reasonOf, upcomingChanges } from '../../policy/rule.ts'
import { digestOf, shortenDigest } from '../../policy/secret-values.ts'
import { compileRoutes } from '../../policy/routes.ts'
import { createShowPath, type ShowPath } from '../../policy/shown-path.ts'
import { wordOf } from '../../policy/words.ts'
import { explainClient, explainCors, explainRoute, type MatchedRoute, withPlan } from './explained-parts.ts'
import type { Explained, ExplainedLimit } from './explained.ts'
import type { RequestLine } from './operator-api.ts'
import { parseQuestion, type ParsedQuestion } from './parsed-question.ts'
import { assertReadable, assertWhole } from './short-forms.ts'

/** The counts of a limit if the store was not asked. */
const UNCOUNTED = { used: null, reserved: null, remaining: null, part: null }

/**
 * Follows a request through a configuration as the gateway would, now or at the instant of the
 * question, without any I/O. Also returns the quotas of its limits; null for an unknown key.
 */
export function explain(config: Config, question: RequestLine, overrides?: Overrides) {
  const { request: asked, caller: named, facts, atMs } = parseQuestion(question)
  const caller = withPlan(named, config)
  const request = { ...asked, host: asked.host ?? defaultHost(config) }
  const { method, host } = request
  assertWhole(question)
  const routes = compileRoutes(config.routes, { ...config, overrides, acceptsDigests: true })
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

  const compiled = route && !refusal ? route.compiled : []
  const limits = compiled.map((one) =>
    explainLimit(one, { caller, facts: sent, atMs, prefix: config.prefix }),
  )
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
    client: caller.client === undefined ? null : explainClient(caller, config),
    limits: limits.map(({ explained }) => explained),
    passedOver: tried
      .slice(0, target && route?.respond !== 'resource' ? index : 0)
      .map((route) => ({ match: route.match, because: passedOverBy(route, method, target!) })),
  }
  return { explained, quotas: limits.map(({ quota }) => quota) }
}

/** Explains a limit of the route, also one that is left out of the request; its quota is null for an unknown key. */
function explainLimit(
  compiled: CompiledLimit,
  {
    caller,
    facts,
    atMs,
    prefix,
  }: Pick<ParsedQuestion, 'caller' | 'facts' | 'atMs'> & { readonly prefix: string },
): { readonly explained: ExplainedLimit; readonly quota: Quota | null } {
  const { limit, leftOutBy, lackingIn, keyFor, beginningOf, rulesFor } = compiled
  const { name, per, calendar, skipsMissing, counts, cost, actual, isConcurrent } = limit
  assertReadable(limit, caller)
  /** The parts of the key that the question does not name. An unknown address is empty. */
  const absent = new Set(lackingIn(caller, facts))
  const isLacking = (part: string): boolean =>
    absent.has(part) || (caller.ip === '' && wordOf(part).from === 'connection')
  const lacking = per.filter(isLacking)
  const whole = lacking.length === 0 ? keyFor(caller, facts) : undefined
  const key = typeof whole === 'string' ? whole : null
  const rules = rulesFor(caller, key ?? beginningOf(caller, facts))
  const quota = quotaOf(limit, key ?? '', atMs, rules)
  const { limit: calls, windowMs, shadow, source } = quota
  const explained = {
    name,
    limit: calls,
    shadow,
    per,
    lacking,
    ...(!isConcurrent && { windowMs }),
    ...(skipsMissing && { missing: 'skip' as const }),
    ...(calendar && { calendar }),
    ...(counts !== undefined && { counts }),
    ...(cost !== undefined && { cost, ...(actual && { actual }) }),
    leftOut: leftOutBy(caller, facts) ?? null,
    key: key === null ? null : showKey(prefix, limit, key),
    decidedBy: source,
    because: reasonOf(limit, source, atMs, rules),
    next: upcomingChanges(limit, atMs, rules)[0] ?? null,
    ...UNCOUNTED,
  }
  return { explained, quota: key === null ? null : quota }
}

function explainReading({ path, found }: Reading<MatchedRoute>, showPath?: ShowPath) {
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

function passedOverBy(route: MatchedRoute, method: string, { host, segments }: Target): string {
  const { methods = METHODS } = route
  if (!matchesHost(route, host)) return `matches another host than ${host}`
  if (!matchesPath(route, host, segments.map(foldCase), segments.length)) return 'matches another path'
  if (!methods.has(method)) return `allows ${[...methods].toSorted().join(', ')}, not ${method}`
  return 'matches, but the path belongs to a route with "authenticate: par" or "authorization"'
}
