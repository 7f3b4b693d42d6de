import { CALLER_PARTS } from '../../downstream/router.ts'
import type { Limit } from '../../limit/limit.ts'
import { partOf } from '../../limit/rules/parts.ts'
import { claimsOf } from '../../limit/rules/conditions.ts'
import { isVariable } from '../../limit/rules/parts.ts'
import { normalizeFieldName } from '../../upstream/header-policy.ts'
import type { Settings } from '../schema.ts'
import { type Issue, nearest, type Path } from '../yaml/issue.ts'

type RouteSettings = Settings['routes'][number]

function paramsOf({ segments }: RouteSettings): readonly string[] {
  return segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
}

/** Yields parts of keys that a route lacks: at the limit if they seem misspelt, else at the route. */
export function* keyPartIssues({ limits, routes }: Settings): Generator<Issue> {
  for (const { name, per } of limits) {
    const users = [...routes.entries()].filter(([, { limits }]) => limits.includes(name))
    const defined = [...CALLER_PARTS, ...users.flatMap(([, route]) => paramsOf(route))]
    for (const [i, part] of per.entries()) {
      if (part.includes(':')) continue
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

/** Yields limits on open routes that read the token, other than by the parts that `keyPartProblem` names. */
export function* tokenIssues({ limits, routes }: Settings): Generator<Issue> {
  for (const limit of limits) {
    const claim = claimsOf([limit])[0]
    const reads = limit.together === 'token' ? 'has "together: token"' : claim && `reads the claim ${claim}`
    for (const [i, { limits: names, authenticate }] of reads === undefined ? [] : routes.entries()) {
      const message = `the limit "${limit.name}" ${reads}, but an open route has no token; write "authenticate: bearer", or remove the limit`
      if (authenticate === 'none' && names.includes(limit.name))
        yield { path: ['routes', i, 'limits', names.indexOf(limit.name)], message }
    }
  }
}

/** Returns why a route lacks a part of a key, and the remedy. */
function keyPartProblem(part: string, route: RouteSettings): string | undefined {
  const isAuthenticated = part === 'client' || part === 'user' || part === 'token'
  if (isAuthenticated && route.authenticate === 'none')
    return 'an open route does not identify it; write "authenticate: bearer"'
  if (CALLER_PARTS.has(part) || paramsOf(route).includes(part)) return undefined
  return `"${route.match}" has no :${part}; name a segment :${part}`
}

export function* unusedParameters({ parameters, routes, limits }: Settings): Generator<Issue> {
  const defined = [...routes.flatMap(paramsOf), ...limits.flatMap(({ per }) => per)]
  for (const name of Object.keys(parameters)) {
    if (defined.includes(partOf(name))) continue
    const similar = defined.find((part) => part.endsWith(`:${name}`)) ?? nearest(name, defined)
    const hint = similar === undefined ? 'remove it' : `did you mean "${similar}"?`
    const where = name.includes(':')
      ? `no limit has ${name} in its "per"`
      : `no route has a :${name} in its path`
    yield { path: ['parameters', name], message: `${where}; ${hint}`, key: true }
  }
}

/** Yields other uses of the field of the request id. */
export function* requestIdIssues({ headers, limits, upstreams }: Settings): Generator<Issue> {
  const isId = (name: string): boolean =>
    normalizeFieldName(name.toLowerCase()) === normalizeFieldName(idField)
  const idField = headers.requestId.toLowerCase()
  const message = 'is the field of the request id (headers.requestId); remove it'
  for (const { name, refusal } of limits)
    for (const field of Object.keys(refusal?.headers ?? {}).filter(isId))
      yield { path: ['limits', name, 'refusal', 'headers', field], message, key: true }
  for (const { name, identityHeaders } of upstreams)
    for (const i of identityHeaders.keys())
      if (isId(identityHeaders[i]!)) yield { path: ['upstreams', name, 'identityHeaders', i], message }
}

const firstOf = ({ per }: Pick<Limit, 'per'>): string => per[0] ?? 'no part'

/** Yields limits of a route that conflict: a live one must be first, and on a cluster all must share a hash slot. */
export function* limitConflicts(
  route: RouteSettings,
  path: Path,
  { limits, store }: Settings,
): Generator<Issue> {
  const { limits: names, match, authenticate } = route
  const own = names.map((name) => limits.find((limit) => limit.name === name))
  if (own[0]?.shadow === true) {
    const message = `"${names[0]}" is a shadow limit, and response headers report a route's first limit; put a live limit before it`
    yield { path: [...path, 0], message }
  }
  if (store === 'memory' || !('cluster' in store.redis.topology) || own[0] === undefined) return
  const first = firstOf(own[0])
  if (isVariable(own[0].per[0]) && authenticate === 'bearer') {
    const message = `on a Redis Cluster, the limits of "${match}" must share a hash slot with DPoP proofs, which start with client, but the "per" of "${names[0]}" starts with ${first}; start it with client`
    yield { path: [...path, 0], message }
  }
  for (const [j, limit] of own.entries()) {
    if (limit === undefined) continue
    const other = firstOf(limit)
    const message = `on a Redis Cluster, the limits of a route must share a hash slot, but the "per" of "${names[0]}" starts with ${first} and that of "${names[j]}" with ${other}; start both with the same part`
    if (other !== first || (j > 0 && limit.per.length === 0)) yield { path: [...path, j], message }
    // Keys without a first part have no hash tag.
    const alone = `on a Redis Cluster, the accesses of "${names[j]}" must share a hash slot with it, but its "per" has no part; start it with one`
    if (limit.together !== undefined && limit.per.length === 0) yield { path: [...path, j], message: alone }
  }
}
