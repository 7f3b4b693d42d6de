import type { Settings } from '../schema.ts'
import type { Mistake } from '../yaml/problem.ts'
import { dangling, nearest, oneOf } from '../yaml/wording.ts'
import { paramsOf, routes } from './routes.ts'

/** The mistakes across sections: names that lead nowhere, routes that hide others, and the like. */
export function* crossCheck(settings: Settings): Generator<Mistake> {
  yield* ports(settings)
  yield* clients(settings)
  yield* keyParts(settings)
  yield* parameters(settings)
  yield* routes(settings)
  yield* missing(settings)
}

function* ports({ listen, admin }: Settings): Generator<Mistake> {
  const isShared = [listen.host, admin.host].some((host) => host === '0.0.0.0' || host === '::')
  if (listen.port !== admin.port || listen.port === 0 || !(isShared || listen.host === admin.host)) return
  const path = admin.port === 9090 ? ['listen', 'port'] : ['admin', 'port']
  yield { path, message: `is ${listen.port} for both "listen" and "admin"; give each its own port` }
}

/** Clients that stand twice or are of an unknown issuer, and own limits that replace none. */
function* clients({ clients, limits, tokens }: Settings): Generator<Mistake> {
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
          ? dangling('limit', name, [...known.keys()])
          : 'is a limit that is not counted per client, so no client has one of its own; add client to its "per" or take this out'
      yield { path: ['clients', i, 'limits', name], message, key: true }
    }
  }
}

/** What a key may be made of besides the parameters of a path. */
const OF_CALLER = ['client', 'user', 'ip']

/** Parts of keys that a route of their limit lacks: reported in the limit where they are misspelt, else at the route. */
function* keyParts({ limits, routes }: Settings): Generator<Mistake> {
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

/** Kinds of parameters that no route has. */
function* parameters({ parameters, routes }: Settings): Generator<Mistake> {
  const known = routes.flatMap(paramsOf)
  for (const name of Object.keys(parameters)) {
    if (known.includes(name)) continue
    const meant = nearest(name, known)
    const hint = meant === undefined ? 'take it out' : `did you mean "${meant}"?`
    yield { path: ['parameters', name], message: `no route has a :${name} in its path; ${hint}`, key: true }
  }
}

/** Sections that a route needs and that are not there. */
function* missing({ tokens, par, routes }: Settings): Generator<Mistake> {
  const bearer = routes.findIndex(({ authenticate }) => authenticate === 'bearer')
  if (tokens === undefined && bearer !== -1) {
    const message = `is missing; routes[${bearer}] says "authenticate: bearer", so write whose tokens are taken: issuer and audience`
    yield { path: ['tokens'], message }
  }
  const guarded = routes.findIndex(({ authenticate }) => authenticate === 'par')
  if (par === undefined && guarded !== -1) {
    const message = `is missing; routes[${guarded}] says "authenticate: par", so write the issuer for which assertions are made`
    yield { path: ['par'], message }
  }
}
