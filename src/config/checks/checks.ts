import { covers } from '../../downstream/router.ts'
import type { Settings } from '../schema.ts'
import { type Issue, nearest, oneOf, type Path, undefinedName } from '../yaml/issue.ts'

/** Yields mistakes that involve several sections, such as undefined names and unreachable routes. */
export function* crossCheck(settings: Settings): Generator<Issue> {
  const checks = [portConflicts, clientIssues, keyPartIssues, unusedParameters, routeIssues, missingSections]
  for (const check of checks) yield* check(settings)
}

function* portConflicts({ listen, admin }: Settings): Generator<Issue> {
  const isShared = [listen.host, admin.host].some((host) => host === '0.0.0.0' || host === '::')
  if (listen.port !== admin.port || listen.port === 0 || !(isShared || listen.host === admin.host)) return
  const path = admin.port === 9090 ? ['listen', 'port'] : ['admin', 'port']
  yield { path, message: `is ${listen.port} for both "listen" and "admin"; give each its own port` }
}

/** Yields duplicate clients, undefined issuers, and own limits that replace no limit per client. */
function* clientIssues({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = [tokens ?? []].flat().map(({ issuer }) => issuer)
  const firsts = new Map<string, number>()
  for (const [i, { id, issuer = issuers[0], limits: own }] of clients.entries()) {
    if (issuer !== undefined && !issuers.includes(issuer)) {
      const hint = issuers.length === 0 ? 'remove it' : `write ${oneOf(issuers)}, or remove it`
      yield { path: ['clients', i, 'issuer'], message: `is not an issuer of "tokens"; ${hint}` }
    }
    const key = JSON.stringify([issuer, id])
    const first = firsts.get(key)
    if (first === undefined) firsts.set(key, i)
    else yield { path: ['clients', i, 'id'], message: `is also in clients[${first}]; merge the two` }
    for (const name of Object.keys(own)) {
      const limit = limits.find((limit) => limit.name === name)
      if (limit?.per.includes('client') === true) continue
      const notPerClient = 'is not counted per client; add client to its "per" or remove this'
      const message = limit ? notPerClient : undefinedName('limit', name, namesOf(limits))
      yield { path: ['clients', i, 'limits', name], message, key: true }
    }
  }
}

const namesOf = (items: readonly { readonly name: string }[]): readonly string[] =>
  items.map(({ name }) => name)

/** Parts of keys that do not depend on the path. */
const CALLER_PARTS = ['client', 'user', 'ip']

/** Yields parts of keys that a route lacks: at the limit if they seem misspelt, else at the route. */
function* keyPartIssues({ limits, routes }: Settings): Generator<Issue> {
  for (const { name, per } of limits) {
    const users = [...routes.entries()].filter(([, { limits }]) => limits.includes(name))
    const defined = [...CALLER_PARTS, ...users.flatMap(([, route]) => paramsOf(route))]
    for (const [i, part] of per.entries()) {
      const similar = users.length === 0 || defined.includes(part) ? undefined : nearest(part, defined)
      const message = `no route of this limit has a :${part} in its path; did you mean "${similar}"?`
      if (similar !== undefined) yield { path: ['limits', name, 'per', i], message }
      for (const [j, route] of similar === undefined ? users : []) {
        const problem = keyPartProblem(part, route)
        const message = `the limit "${name}" is per ${part}, but ${problem}, or remove the limit`
        if (problem) yield { path: ['routes', j, 'limits', route.limits.indexOf(name)], message }
      }
    }
  }
}

/** Returns why a route lacks a part of a key, and the remedy. */
function keyPartProblem(part: string, route: RouteSettings): string | undefined {
  const isAuthenticated = part === 'client' || part === 'user'
  if (isAuthenticated && route.authenticate === 'none')
    return 'an open route does not identify it; write "authenticate: bearer"'
  if (CALLER_PARTS.includes(part) || paramsOf(route).includes(part)) return undefined
  return `"${route.match}" has no :${part}; name a segment :${part}`
}

function* unusedParameters({ parameters, routes }: Settings): Generator<Issue> {
  const defined = routes.flatMap(paramsOf)
  for (const name of Object.keys(parameters)) {
    if (defined.includes(name)) continue
    const similar = nearest(name, defined)
    const hint = similar === undefined ? 'remove it' : `did you mean "${similar}"?`
    yield { path: ['parameters', name], message: `no route has a :${name} in its path; ${hint}`, key: true }
  }
}

/** Yields undefined sections that a route needs. */
function* missingSections({ tokens, par, routes }: Settings): Generator<Issue> {
  const needed = [
    ['bearer', tokens, 'tokens', 'the issuer and the audience of the tokens'],
    ['par', par, 'par', 'the issuer that is the audience of assertions'],
    ['authorization', par, 'par', 'the issuer that is the audience of request objects'],
  ] as const
  for (const [kind, section, key, what] of needed) {
    const i = routes.findIndex(({ authenticate }) => authenticate === kind)
    const message = `is missing; routes[${i}] has "authenticate: ${kind}", so write ${what}`
    if (section === undefined && i !== -1) yield { path: [key], message }
  }
}

type RouteSettings = Settings['routes'][number]

function paramsOf({ segments }: RouteSettings): readonly string[] {
  return segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
}

/** Yields undefined upstreams and limits, limits that conflict, and unreachable routes. */
function* routeIssues(settings: Settings): Generator<Issue> {
  const { listen, routes } = settings
  const [upstreams, limits] = [namesOf(settings.upstreams), namesOf(settings.limits)]
  const patterns = routes.map((route) => ({ ...route, hosts: listen.hosts }))
  for (const [i, route] of routes.entries()) {
    const { match, upstream } = route
    if (upstream !== undefined && !upstreams.includes(upstream))
      yield { path: ['routes', i, 'upstream'], message: undefinedName('upstream', upstream, upstreams) }
    for (const [j, name] of route.limits.entries())
      if (!limits.includes(name))
        yield { path: ['routes', i, 'limits', j], message: undefinedName('limit', name, limits) }
    yield* limitConflicts(route, ['routes', i, 'limits'], settings)
    const hosts = route.host === undefined ? (listen.hosts ?? [undefined]) : [route.host]
    const earlier = patterns.slice(0, i)
    const covering = new Set(
      hosts.map((host) => earlier.findIndex((pattern) => covers(pattern, { ...route, host }))),
    )
    if (covering.has(-1)) continue
    const names = [...covering].map((j) => `"${routes[j]!.match}" (routes[${j}])`).join(' and ')
    const isByHost = [...covering].some((j) => routes[j]!.host !== route.host)
    const where = isByHost && route.host === undefined ? ' at the hosts of "listen.hosts"' : ''
    const verb = covering.size > 1 ? 'match' : 'matches'
    const message = `can never match: ${names} ${verb} everything that "${match}" would${where}; put it first or remove it`
    yield { path: ['routes', i, 'match'], message }
  }
}

/** Yields limits of a route that conflict: a live one must be first, and on a cluster all must share a hash slot. */
function* limitConflicts(route: RouteSettings, path: Path, { limits, store }: Settings): Generator<Issue> {
  const { limits: names, match, authenticate } = route
  const own = names.map((name) => limits.find((limit) => limit.name === name))
  if (own[0]?.shadow === true) {
    const message = `"${names[0]}" is a shadow limit, and response headers report a route's first limit; put a live limit before it`
    yield { path: [...path, 0], message }
  }
  const first = own[0]?.per[0]
  if (store === 'memory' || !('cluster' in store.redis.topology) || first === undefined) return
  if (first === 'ip' && authenticate === 'bearer') {
    const message = `on a Redis Cluster, the limits of "${match}" must share a hash slot with DPoP proofs, which start with client, but the "per" of "${names[0]}" starts with ip; start it with client`
    yield { path: [...path, 0], message }
  }
  for (const [j, limit] of own.entries()) {
    const other = limit?.per[0]
    const message = `on a Redis Cluster, the limits of a route must share a hash slot, but the "per" of "${names[0]}" starts with ${first} and that of "${names[j]}" with ${other}; start both with the same part`
    if (other !== undefined && other !== first) yield { path: [...path, j], message }
  }
}
