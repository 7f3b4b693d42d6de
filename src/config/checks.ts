import { acceptsKeys, acceptsTokens } from '../downstream/router.ts'
import type { Limit } from '../policy/limit.ts'
import { claimsOf } from '../policy/conditions.ts'
import { parametersOf } from '../policy/parameter-kinds.ts'
import { isVariable } from '../policy/parts.ts'
import { formsOf, partOf, wordOf } from '../policy/words.ts'
import { byName } from '../runtime/grouping.ts'
import { asList } from '../runtime/json.ts'
import { clientIssues, planIssues } from './client-checks.ts'
import { costIssues, type OwnLimits } from './cost-checks.ts'
import { fieldIssues } from './field-checks.ts'
import { resourceIssues } from './resource-route.ts'
import { routeHostIssues } from './route-hosts.ts'
import { routeNameIssues } from './route-names.ts'
import type { Settings } from './schema.ts'
import { writtenWays } from './sections/routes.ts'
import { unreachableRoutes } from './unreachable-routes.ts'
import { foreignPart } from './yaml/foreign-words.ts'
import { type Issue, issueAt, issueAtKey, nearest, type Path } from './yaml/issue.ts'

type Route = Settings['routes'][number]

/**
 * Yields mistakes that involve several sections, such as ports in conflict and unreachable routes.
 */
export function* crossCheck(settings: Settings): Generator<Issue> {
  yield* portConflicts(settings)
  yield* clientIssues(settings)
  yield* planIssues(settings)
  yield* bindingIssues(settings)
  yield* resourceIssues(settings)
  yield* unusedParameters(settings)
  yield* fieldIssues(settings)
  yield* routeHostIssues(settings)
  yield* routeNameIssues(settings)
  yield* routeIssues(settings)
  yield* unreachableRoutes(settings)
}

const isAny = (host: string): boolean => host === '0.0.0.0' || host === '::'

function* portConflicts({ listen, admin, forwardAuth }: Settings): Generator<Issue> {
  const listeners = Object.entries({ admin, listen, ...(forwardAuth && { forwardAuth }) })
  for (const [i, [name, { host, port }]] of listeners.entries()) {
    const shares = (other: string) => other === host || isAny(host) || isAny(other)
    const earlier = listeners.slice(0, i)
    const first = earlier.find(([, other]) => other.port === port && shares(other.host))
    if (first !== undefined && port !== 0)
      yield issueAt([name, 'port'], `is ${port} for both "${first[0]}" and "${name}"; give each its own port`)
  }
}

/** True if the gateway can get the TLS client certificate of a caller, by itself or from a proxy. */
export function seesCertificates({
  tls,
  trustedProxies,
}: Pick<Settings['listen'], 'tls' | 'trustedProxies'>) {
  const { clientCa, requestClientCert = false } = tls ?? {}
  return clientCa !== undefined || requestClientCert || trustedProxies.length > 0
}

/** Yields `bound: required` if the gateway could check neither proofs nor certificates. */
function* bindingIssues({ tokens, listen, routes }: Settings): Generator<Issue> {
  const hosts = listen.hosts ?? routes.flatMap(({ host }) => host ?? [])
  const checksProofs = hosts.length > 0 || listen.publicUrl !== undefined
  if (checksProofs || seesCertificates(listen)) return
  for (const [i, { bound }] of asList(tokens ?? []).entries()) {
    if (bound === undefined) continue
    yield issueAt(
      ['tokens', ...(Array.isArray(tokens) ? [i] : []), 'bound'],
      'refuses all tokens: DPoP proofs need listen.hosts, and certificates listen.tls.clientCa or a trusted proxy; set one',
    )
  }
}

/** Returns the mistake of a limit that reads the token, if callers of its route may have none. */
function tokenLackedBy(route: Route, limit: Limit): string | undefined {
  const { name, per, together } = limit
  const read = per.filter((part) => wordOf(part).from === 'token')
  const readsClaims = claimsOf([limit]).length > 0
  if (route.authenticate === 'none' && (read.length > 0 || together === 'token' || readsClaims))
    return `the limit "${name}" reads the token, but an open route has none; write "authenticate: bearer", or remove the limit`
  if (!acceptsKeys(route)) return undefined
  // A key names its client. A limit can be left out of calls without a user or a claim, but not without a token.
  const needed = read.filter((part) => part !== 'client' && !(acceptsTokens(route) && wordOf(part).mayLack))
  if (needed.length > 0 || together === 'token' || (readsClaims && !acceptsTokens(route)))
    return `the limit "${name}" reads the token, which a caller with a key does not have; write "authenticate: bearer", or remove the limit`
  return undefined
}

/** Returns the mistake of a limit that needs what its route lacks; undefined if it has everything. */
function lackedBy(route: Route, limit: Limit): string | undefined {
  const lack = tokenLackedBy(route, limit)
  if (lack !== undefined) return lack
  const inPath = parametersOf(route)
  const part = limit.per.find((part) => wordOf(part).from === 'path' && !inPath.includes(part))
  if (part === undefined) return undefined
  const meant = foreignPart(part)
  if (meant !== undefined)
    return `the limit "${limit.name}" is per ${part}, a word of Kong; write ${meant} in its "per"`
  const similar = nearest(part, [...formsOf(({ isNamed }) => !isNamed), ...inPath])
  const remedy =
    similar === undefined ? 'correct its "per" or the path' : `correct its "per" (did you mean "${similar}"?)`
  return `the limit "${limit.name}" is per ${part}, but "${route.match}" has no :${part}; ${remedy}, or remove the limit`
}

/** Yields kinds of parameters that nothing has. In a main file with `include`, a team may use them. */
export function* unusedParameters({
  include,
  parameters,
  routes,
  limits,
}: Pick<Settings, 'include' | 'parameters' | 'routes' | 'limits'>): Generator<Issue> {
  if (include !== undefined) return

  const defined = new Set([...routes.flatMap(parametersOf), ...limits.flatMap(({ per }) => per)])
  for (const name of Object.keys(parameters)) {
    if (!defined.has(partOf(name)))
      yield issueAtKey(['parameters', name], 'no path and no "per" has it; correct it, or remove it')
  }
}

function* routeIssues(settings: Settings): Generator<Issue> {
  const limits = byName(settings.limits)
  for (const [i, route] of settings.routes.entries()) {
    const path = ['routes', i]
    yield* missingSections(settings, route, i)
    yield* upstreamIssues(settings, route, path)
    // An undefined limit is a mistake of its own.
    const own = route.limits.map((name) => limits.get(name))
    for (const [j, limit] of own.entries()) {
      const lack = limit && lackedBy(route, limit)
      if (lack !== undefined) yield issueAt([...path, 'limits', j], lack)
    }
    yield* limitConflicts(settings, route, own, [...path, 'limits'])
    yield* costIssues(settings, route, own, [...path, 'cost'])
  }
}

/** The sections that the authentication of a route needs. */
const NEEDED: Readonly<Record<Route['authenticate'], readonly ('tokens' | 'keys' | 'par')[]>> = {
  none: [],
  bearer: ['tokens'],
  key: ['keys'],
  'bearer or key': ['tokens', 'keys'],
  par: ['par'],
  authorization: ['par'],
}

/** Yields the sections that the authentication of a route needs, and the file has not. */
function* missingSections(settings: Settings, { authenticate, team }: Route, i: number): Generator<Issue> {
  for (const section of NEEDED[authenticate]) {
    if (settings[section] !== undefined) continue
    if (team === undefined)
      yield issueAt(
        [section],
        `is missing, but routes[${i}] has "authenticate: ${writtenWays(authenticate)}"; write it`,
      )
    else
      yield issueAt(
        ['routes', i, 'authenticate'],
        `needs "${section}" of the main file, which has none; write "authenticate: none"`,
      )
  }
}

/** Yields what a route without an upstream lacks. */
function* upstreamIssues({ forwardAuth }: Settings, route: Route, path: Path): Generator<Issue> {
  const { upstream, respond, upgrade } = route
  if (upstream !== undefined || respond !== undefined) return
  if (forwardAuth === undefined)
    yield issueAtKey([...path, 'upstream'], 'is missing; write the name of an upstream, or "respond: limits"')
  else if (upgrade !== undefined)
    yield issueAtKey(
      [...path, 'upgrade'],
      'does not apply without an upstream, as the proxy that asks opens WebSockets; remove it',
    )
}

/**
 * Yields limits of a route that conflict: a live one must be first, and on a cluster all must share
 * a hash slot.
 */
function* limitConflicts({ store }: Settings, { authenticate }: Route, own: OwnLimits, path: Path) {
  const [first] = own
  if (first === undefined) return
  if (first.shadow)
    yield issueAt(
      [...path, 0],
      `"${first.name}" is a shadow limit; put a live one before it, for the header fields`,
    )
  if (store === 'memory' || !('cluster' in store.redis.topology)) return
  const isOffProofs = acceptsTokens({ authenticate }) && isVariable(first.per[0])
  for (const [j, limit] of own.entries()) {
    if (limit === undefined) continue
    // Keys without a first part have no hash tag.
    const isAlone = limit.per.length === 0 && (j > 0 || limit.together !== undefined)
    const isElsewhere = limit.per[0] !== first.per[0] || (j === 0 && isOffProofs)
    if (isAlone || isElsewhere)
      yield issueAt(
        [...path, j],
        'must share a hash slot with the others and DPoP proofs; begin each "per" alike',
      )
  }
}
