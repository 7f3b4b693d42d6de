import { hides } from '../../downstream/router.ts'
import type { Settings } from '../schema.ts'
import type { Mistake } from '../yaml/problem.ts'
import { dangling } from '../yaml/wording.ts'

type RouteSettings = Settings['routes'][number]

/** The names of the parameters in a route's path. */
export function paramsOf({ segments }: RouteSettings): readonly string[] {
  return segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
}

/** Routes that lead nowhere or can never match, and limits that cannot be decided together. */
export function* routes(settings: Settings): Generator<Mistake> {
  const { routes, upstreams, limits } = settings
  const backends = upstreams.map(({ name }) => name)
  const names = limits.map(({ name }) => name)
  for (const [i, route] of routes.entries()) {
    const { match, upstream } = route
    if (upstream !== undefined && !backends.includes(upstream)) {
      yield { path: ['routes', i, 'upstream'], message: dangling('upstream', upstream, backends) }
    }
    for (const [j, name] of route.limits.entries()) {
      if (!names.includes(name))
        yield { path: ['routes', i, 'limits', j], message: dangling('limit', name, names) }
    }
    yield* together(route, i, settings)
    const hiding = routes.slice(0, i).findIndex((other) => hides(other, route))
    if (hiding === -1) continue
    const message = `can never match: "${routes[hiding]!.match}" (routes[${hiding}]) takes all that "${match}" would; put it first or take it out`
    yield { path: ['routes', i, 'match'], message }
  }
}

/** Limits that are decided together: a live one leads, and on a cluster all are kept in one slot. */
function* together(
  { limits: names, match, authenticate }: RouteSettings,
  i: number,
  { limits, store }: Settings,
): Generator<Mistake> {
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
