import { covers } from '../downstream/router.ts'
import { counterNameOf } from '../policy/key.ts'
import type { Limit } from '../policy/limit.ts'
import { claimsOf } from '../policy/conditions.ts'
import { parametersOf } from '../policy/parameter-kinds.ts'
import { isVariable } from '../policy/parts.ts'
import { formsOf, partOf, wordOf } from '../policy/words.ts'
import { asList } from '../runtime/json.ts'
import { fieldIssues } from './field-checks.ts'
import { resourceIssues } from './resource-route.ts'
import { routeHostIssues } from './route-hosts.ts'
import { routeNameIssues } from './route-names.ts'
import type { Settings } from './schema.ts'
import { costOf } from './sections/routes.ts'
import { type Issue, nearest, type Path } from './yaml/issue.ts'

type Route = Settings['routes'][number]

/**
 * Yields mistakes that involve several sections, such as ports in conflict and unreachable routes.
 */
export function* crossCheck(settings: Settings): Generator<Issue> {
  yield* portConflicts(settings)
  yield* clientIssues(settings)
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
    const message = `is ${port} for both "${first?.[0]}" and "${name}"; give each its own port`
    if (first !== undefined && port !== 0) yield { path: [name, 'port'], message }
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
  const message =
    'refuses all tokens: DPoP proofs need listen.hosts, and certificates listen.tls.clientCa or a trusted proxy; set one'
  for (const [i, { bound }] of asList(tokens ?? []).entries())
    if (bound !== undefined)
      yield { path: ['tokens', ...(Array.isArray(tokens) ? [i] : []), 'bound'], message }
}

function* clientIssues({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = asList(tokens ?? [])
  const firsts = new Map<string, number>()
  for (const [i, { id, issuer: name = issuers[0]?.issuer, limits: own }] of clients.entries()) {
    const message = 'is not an issuer of "tokens"; write one of them, or remove it'
    const issuer = issuers.find(({ names }) => name !== undefined && names.includes(name))
    if (name !== undefined && issuer === undefined) yield { path: ['clients', i, 'issuer'], message }
    const key = JSON.stringify([issuer?.issuer ?? name, id])
    const first = firsts.get(key)
    if (first === undefined) firsts.set(key, i)
    else yield { path: ['clients', i, 'id'], message: `is also in clients[${first}]; merge them` }
    for (const [name, { windowMs }] of Object.entries(own)) {
      const path = ['clients', i, 'limits', name]
      const ofWindow = [...path, 'window']
      const limit = limits.find((limit) => limit.name === name)
      if (limit === undefined) continue
      const { per, calendar, isConcurrent, counts, together } = limit
      const notPerClient = 'is not counted per client; add client to its "per" or remove this'
      const fixed = 'does not apply to a calendar, calls at once or a shared counter; remove it'
      const tooShort = `is shorter than "together" of "${name}"; write at least that`
      const isShared = counts !== undefined || limits.some((other) => other.counts === name)
      if (!per.includes('client')) yield { path, message: notPerClient, key: true }
      else if (windowMs === undefined) continue
      else if (calendar || isConcurrent || isShared) yield { path: ofWindow, message: fixed }
      else if (typeof together === 'number' && together > windowMs)
        yield { path: ofWindow, message: tooShort }
    }
  }
}

/** Returns what a limit needs and its route lacks. */
function lackedBy(route: Route, limit: Limit): string | undefined {
  const isPerToken = limit.per.some((part) => wordOf(part).from === 'token')
  const readsToken = isPerToken || limit.together === 'token' || claimsOf([limit]).length > 0
  if (readsToken && route.authenticate === 'none')
    return 'reads the token, but an open route has none; write "authenticate: bearer"'
  const inPath = parametersOf(route)
  const part = limit.per.find((part) => wordOf(part).from === 'path' && !inPath.includes(part))
  if (part === undefined) return undefined
  const similar = nearest(part, [...formsOf(({ isNamed }) => !isNamed), ...inPath])
  const remedy =
    similar === undefined ? 'correct its "per" or the path' : `correct its "per" (did you mean "${similar}"?)`
  return `is per ${part}, but "${route.match}" has no :${part}; ${remedy}`
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
    if (defined.has(partOf(name))) continue
    const message = 'no path and no "per" has it; correct it, or remove it'
    yield { path: ['parameters', name], message, key: true }
  }
}

function* routeIssues(settings: Settings): Generator<Issue> {
  const { limits, forwardAuth } = settings
  for (const [i, route] of settings.routes.entries()) {
    const { upstream, respond, authenticate } = route
    const path = ['routes', i]
    const section = authenticate === 'bearer' ? 'tokens' : 'par'
    const message = `is missing, but routes[${i}] has "authenticate: ${authenticate}"; write it`
    const ofTeam = `needs "${section}" of the main file, which has none; write "authenticate: none"`
    if (authenticate !== 'none' && !settings[section])
      yield route.team === undefined
        ? { path: [section], message }
        : { path: [...path, 'authenticate'], message: ofTeam }
    const missing = 'is missing; write the name of an upstream, or "respond: limits"'
    if (upstream === undefined && respond === undefined && forwardAuth === undefined)
      yield { path: [...path, 'upstream'], message: missing, key: true }
    const unserved = 'does not apply without an upstream, as the proxy that asks opens WebSockets; remove it'
    if (route.upgrade && upstream === undefined && respond === undefined && forwardAuth !== undefined)
      yield { path: [...path, 'upgrade'], message: unserved, key: true }
    // An undefined limit is a mistake of its own.
    const own = route.limits.map((name) => limits.find((limit) => limit.name === name))
    for (const [j, limit] of own.entries()) {
      const lacking = limit && lackedBy(route, limit)
      const message = `the limit "${limit?.name}" ${lacking}, or remove the limit`
      if (lacking !== undefined) yield { path: [...path, 'limits', j], message }
    }
    yield* limitConflicts(settings, route, own, [...path, 'limits'])
    yield* costIssues(route, own, [...path, 'cost'])
  }
}

type OwnLimits = readonly (Limit | undefined)[]

/** Yields costs for limits that a route does not have, and those that the limit never allows. */
function* costIssues(route: Route, own: OwnLimits, path: Path): Generator<Issue> {
  const { cost = 1 } = route
  const isNumber = typeof cost === 'number'
  const limits = own.flatMap((limit) => limit ?? [])
  const none = 'applies only to limits in windows, of which this route has none; remove it'
  if (isNumber && cost > 1 && limits.every(({ isConcurrent }) => isConcurrent))
    yield { path, message: none, key: true }
  for (const [name, points] of Object.entries(isNumber ? {} : cost)) {
    const counter = limits.find((limit) => counterNameOf(limit) === name)
    const message = 'counts no points here; write a limit of the route with a window, or remove it'
    if (counter === undefined || (counter.isConcurrent && points > 0))
      yield { path: [...path, name], message, key: true }
  }
  for (const limit of limits) {
    const { name, limit: most, claim, isConcurrent } = limit
    const message = `is above the limit "${name}", which refuses every call; write at most ${most}`
    if (claim === undefined && !isConcurrent && costOf(route, limit) > Math.max(1, most))
      yield { path: isNumber ? path : [...path, counterNameOf(limit)], message }
  }
}

/** Yields routes of which all requests match others of the same file before. */
function* unreachableRoutes({ listen, routes }: Settings): Generator<Issue> {
  const files = new Map<string | undefined, Route[]>()
  for (const [i, route] of routes.entries()) {
    const earlier = files.get(route.team) ?? []
    const hosts = route.host === undefined ? (listen.hosts ?? [undefined]) : [route.host]
    const covering = new Set(
      hosts.map((host) => earlier.findIndex((pattern) => covers(pattern, { ...route, host }))),
    )
    earlier.push({ ...route, hosts: listen.hosts })
    files.set(route.team, earlier)
    if (covering.has(-1)) continue
    const names = [...covering].map((j) => `"${earlier[j]!.match}" (routes[${j}])`).join(' and ')
    const message = `never matches: its requests match ${names} before; put it first or remove it`
    yield { path: ['routes', i, 'match'], message }
  }
}

/**
 * Yields limits of a route that conflict: a live one must be first, and on a cluster all must share
 * a hash slot.
 */
function* limitConflicts({ store }: Settings, { authenticate }: Route, own: OwnLimits, path: Path) {
  const [first] = own
  if (first === undefined) return
  const shadow = `"${first.name}" is a shadow limit; put a live one before it, for the header fields`
  if (first.shadow) yield { path: [...path, 0], message: shadow }
  if (store === 'memory' || !('cluster' in store.redis.topology)) return
  const message = 'must share a hash slot with the others and DPoP proofs; begin each "per" alike'
  const isOffProofs = authenticate === 'bearer' && isVariable(first.per[0])
  for (const [j, limit] of own.entries()) {
    if (limit === undefined) continue
    // Keys without a first part have no hash tag.
    const isAlone = limit.per.length === 0 && (j > 0 || limit.together !== undefined)
    const isElsewhere = limit.per[0] !== first.per[0] || (j === 0 && isOffProofs)
    if (isAlone || isElsewhere) yield { path: [...path, j], message }
  }
}
