import { covers } from '../../downstream/router.ts'
import type { Settings } from '../schema.ts'
import { type Issue, undefinedName, nearest, oneOf } from '../yaml/issue.ts'

/** The mistakes across sections: names that lead nowhere, routes that hide others, and the like. */
export function* crossCheck(settings: Settings): Generator<Issue> {
  yield* ports(settings)
  yield* clients(settings)
  yield* keyParts(settings)
  yield* parameters(settings)
  yield* routes(settings)
  yield* missing(settings)
}

function* ports({ listen, admin }: Settings): Generator<Issue> {
  const isShared = [listen.host, admin.host].some((host) => host === '0.0.0.0' || host === '::')
  if (listen.port !== admin.port || listen.port === 0 || !(isShared || listen.host === admin.host)) return
  const path = admin.port === 9090 ? ['listen', 'port'] : ['admin', 'port']
  yield { path, message: `is ${listen.port} for both "listen" and "admin"; give each its own port` }
}

/** Clients that stand twice or are of an unknown issuer, and own limits that replace none. */
function* clients({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = [tokens ?? []].flat().map(({ issuer }) => issuer)
  const known = new Map(limits.map((limit) => [limit.name, limit]))
  const first = new Map<string, number>()
  for (const [i, { id, issuer = issuers[0], limits: own }] of clients.entries()) {
    if (issuer !== undefined && !issuers.includes(issuer)) {
      const hint = issuers.length === 0 ? 'take it out' : `write ${oneOf(issuers)}, or take it out`
      yield { path: ['clients', i, 'issuer'], message: `is no issuer of "tokens"; ${hint}` }
    }
    const one = JSON.stringify([issuer, id])
    const before = first.get(one)
    if (before === undefined) first.set(one, i)
    else {
      const message = `stands twice, first in clients[${before}]; make one of the two`
      yield { path: ['clients', i, 'id'], message }
    }
    for (const name of Object.keys(own)) {
      const limit = known.get(name)
      if (limit?.per.includes('client') === true) continue
      const message =
        limit === undefined
          ? undefinedName('limit', name, [...known.keys()])
          : 'is a limit that is not counted per client, so no client has one of its own; add client to its "per" or take this out'
      yield { path: ['clients', i, 'limits', name], message, key: true }
    }
  }
}

/** What a key may be made of besides the parameters of a path. */
const OF_CALLER = ['client', 'user', 'ip']

/** Parts of keys that a route of their limit lacks: reported in the limit where they are misspelt, else at the route. */
function* keyParts({ limits, routes }: Settings): Generator<Issue> {
  for (const { name, per } of limits) {
    const users = [...routes.entries()].filter(([, { limits }]) => limits.includes(name))
    const known = [...OF_CALLER, ...users.flatMap(([, route]) => paramsOf(route))]
    for (const [i, part] of per.entries()) {
      const meant = users.length === 0 || known.includes(part) ? undefined : nearest(part, known)
      if (meant !== undefined) {
        const message = `no route of this limit has a :${part} in its path; did you mean "${meant}"?`
        yield { path: ['limits', name, 'per', i], message }
        continue
      }
      for (const [j, route] of users) {
        const path = ['routes', j, 'limits', route.limits.indexOf(name)]
        if (!OF_CALLER.includes(part) && !paramsOf(route).includes(part)) {
          const message = `the limit "${name}" is per ${part}, but "${route.match}" has no :${part}; name a segment :${part} or take the limit out`
          yield { path, message }
        } else if ((part === 'client' || part === 'user') && route.authenticate === 'none') {
          const message = `the limit "${name}" is per ${part}, which callers of an open route do not prove; write "authenticate: bearer" or take the limit out`
          yield { path, message }
        }
      }
    }
  }
}

function* parameters({ parameters, routes }: Settings): Generator<Issue> {
  const known = routes.flatMap(paramsOf)
  for (const name of Object.keys(parameters)) {
    if (known.includes(name)) continue
    const meant = nearest(name, known)
    const hint = meant === undefined ? 'take it out' : `did you mean "${meant}"?`
    yield { path: ['parameters', name], message: `no route has a :${name} in its path; ${hint}`, key: true }
  }
}

/** Sections that a route needs and that are not there. */
function* missing({ tokens, par, routes }: Settings): Generator<Issue> {
  const needed = [
    ['bearer', tokens, 'tokens', 'whose tokens are taken: issuer and audience'],
    ['par', par, 'par', 'the issuer for which assertions are made'],
    ['authorization', par, 'par', 'the issuer for which request objects are made'],
  ] as const
  for (const [how, section, key, what] of needed) {
    const i = routes.findIndex(({ authenticate }) => authenticate === how)
    if (section !== undefined || i === -1) continue
    const message = `is missing; routes[${i}] says "authenticate: ${how}", so write ${what}`
    yield { path: [key], message }
  }
}

type RouteSettings = Settings['routes'][number]

function paramsOf({ segments }: RouteSettings): readonly string[] {
  return segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
}

/** Routes that lead nowhere or can never match, and limits that cannot be decided together. */
function* routes(settings: Settings): Generator<Issue> {
  const { listen, routes, upstreams, limits } = settings
  const backends = upstreams.map(({ name }) => name)
  const names = limits.map(({ name }) => name)
  const patterns = routes.map((route) => ({ ...route, hosts: listen.hosts }))
  for (const [i, route] of routes.entries()) {
    const { match, upstream } = route
    if (upstream !== undefined && !backends.includes(upstream))
      yield { path: ['routes', i, 'upstream'], message: undefinedName('upstream', upstream, backends) }
    for (const [j, name] of route.limits.entries()) {
      if (!names.includes(name))
        yield { path: ['routes', i, 'limits', j], message: undefinedName('limit', name, names) }
    }
    yield* together(route, i, settings)
    const hosts = route.host === undefined ? (listen.hosts ?? [undefined]) : [route.host]
    const before = patterns.slice(0, i)
    const hiding = new Set(
      hosts.map((host) => before.findIndex((other) => covers(other, { ...route, host }))),
    )
    if (hiding.has(-1)) continue
    const taking = [...hiding].map((j) => `"${routes[j]!.match}" (routes[${j}])`).join(' and ')
    const isByHost = [...hiding].some((j) => routes[j]!.host !== route.host)
    const where = isByHost && route.host === undefined ? ' at the hosts of "listen.hosts"' : ''
    const message = `can never match: ${taking} ${hiding.size > 1 ? 'take' : 'takes'} all that "${match}" would${where}; put it first or take it out`
    yield { path: ['routes', i, 'match'], message }
  }
}

/** Limits that are decided together: a live one leads, and on a cluster all are kept in one slot. */
function* together(
  { limits: names, match, authenticate }: RouteSettings,
  i: number,
  { limits, store }: Settings,
): Generator<Issue> {
  const known = names.map((name) => limits.find((limit) => limit.name === name))
  const path = ['routes', i, 'limits']
  if (known[0]?.shadow === true) {
    const why = known.every((limit) => limit?.shadow !== false)
      ? 'which refuses nothing, and no live one stands with it'
      : 'whose headers no caller is to see'
    const message = `"${names[0]}" is a shadow limit, ${why}; write a live limit before it`
    yield { path: [...path, 0], message }
  }
  const first = known[0]?.per[0]
  if (store === 'memory' || !('cluster' in store.redis.topology) || first === undefined) return
  if (first === 'ip' && authenticate === 'bearer') {
    const message = `"${match}" decides "${names[0]}" (per ip first) together with DPoP proofs, which a cluster cannot: it keeps them with their client; let the "per" begin with client`
    yield { path: [...path, 0], message }
  }
  for (const [j, limit] of known.entries()) {
    const other = limit?.per[0]
    if (other === undefined || other === first) continue
    const message = `"${match}" decides "${names[0]}" (per ${first} first) and "${names[j]}" (per ${other} first) together, which a cluster cannot: it keeps them in different places; let the "per" of both begin with the same part`
    yield { path: [...path, j], message }
  }
}
