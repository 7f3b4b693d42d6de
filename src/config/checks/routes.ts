import { hides, parsePattern, type Pattern } from '../../downstream/router.ts'
import { authenticationOf } from './identity.ts'
import { repeated } from './limits.ts'
import { meantBy } from './parts.ts'
import type { Outline, OutlinedRoute } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'
import { dangling } from '../yaml/wording.ts'

/** Routes that lead nowhere or can never match, and limits that cannot be counted where they stand. */
export function* routes(file: Outline): Generator<Mistake> {
  const earlier: { pattern: Pattern; match: string; i: number }[] = []
  for (const [i, route] of file.routes.entries()) {
    const { match, upstream } = route
    const parsed = match === undefined || match === '' ? undefined : parsePattern(match)
    const pattern = typeof parsed === 'string' ? undefined : parsed
    if (typeof parsed === 'string')
      yield { path: ['routes', i, 'match'], message: `is not a pattern: ${parsed}` }
    if (upstream && file.upstreams && !Object.hasOwn(file.upstreams, upstream)) {
      const message = dangling('upstream', upstream, Object.keys(file.upstreams))
      yield { path: ['routes', i, 'upstream'], message }
    }
    yield* answerOf(route, i)
    yield* authenticationOf(route, i, pattern)
    yield* limitsOf(route, i, pattern, file)
    yield* togetherOf(route, i, file)
    if (pattern === undefined) continue
    const hiding = earlier.find((other) => hides(other.pattern, pattern))
    if (hiding) {
      const message = `can never match: "${hiding.match}" (routes[${hiding.i}]) takes all that "${match}" would; put it first or take it out`
      yield { path: ['routes', i, 'match'], message }
    }
    earlier.push({ pattern, match: match!, i })
  }
}

/** Either an upstream answers, or the gateway itself with the caller's limits. */
function* answerOf(
  { upstream, respond, authenticate, limits, timeout }: OutlinedRoute,
  i: number,
): Generator<Mistake> {
  const at = (key: string) => ['routes', i, key]
  if (respond === undefined) {
    if (upstream !== undefined) return
    yield { path: at('upstream'), message: 'is missing; write the name of an upstream, or "respond: limits"' }
    return
  }
  if (upstream !== undefined) {
    yield { path: at('respond'), message: 'stands beside "upstream"; take one of the two out', key: true }
  }
  if (authenticate === 'none' || authenticate === 'par') {
    const message = 'must be bearer, because a caller is told of its own limits alone'
    yield { path: at('authenticate'), message }
  }
  if (limits.length > 0) {
    const message = 'must be left out beside "respond": to read one’s limits costs no call'
    yield { path: at('limits'), message, key: true }
  }
  if (timeout !== undefined) {
    yield {
      path: at('timeout'),
      message: 'must be left out beside "respond": no upstream is asked',
      key: true,
    }
  }
}

/** Limits that are decided together: a live one leads, and on a cluster all are kept in one slot. */
function* togetherOf(
  { limits: names, match, authenticate }: OutlinedRoute,
  i: number,
  file: Outline,
): Generator<Mistake> {
  const known = names.map((name) =>
    name !== undefined && file.limits && Object.hasOwn(file.limits, name) ? file.limits[name] : undefined,
  )
  const path = ['routes', i, 'limits']
  if (known[0]?.shadow === true) {
    const isAlone = known.every((limit) => limit === undefined || limit.shadow === true)
    const message = isAlone
      ? `"${names[0]}" is a shadow limit, which refuses nothing, and no live one stands with it; write a live limit before it`
      : `"${names[0]}" is a shadow limit, whose headers no caller is to see; write a live limit before it`
    yield { path: [...path, 0], message }
  }
  const first = known[0]?.per[0]
  if (file.store.redis?.['cluster'] === undefined || first === undefined) return
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

function* limitsOf(
  { limits, match, authenticate }: OutlinedRoute,
  i: number,
  pattern: Pattern | undefined,
  file: Outline,
): Generator<Mistake> {
  const path = ['routes', i, 'limits']
  yield* repeated(limits, path)
  const params = pattern?.segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
  for (const [j, name] of limits.entries()) {
    if (!name || file.limits === null || limits.indexOf(name) < j) continue
    if (!Object.hasOwn(file.limits, name)) {
      yield { path: [...path, j], message: dangling('limit', name, Object.keys(file.limits)) }
      continue
    }
    for (const part of file.limits[name]!.per) {
      if (part === undefined || part === 'ip' || part.startsWith(':')) continue
      if (part === 'client' || part === 'user') {
        if (authenticate !== 'none') continue
        const message = `the limit "${name}" is per ${part}, whom nobody proves to be here; write "authenticate: bearer" or take the limit out`
        yield { path: [...path, j], message }
      } else if (params && !params.includes(part) && meantBy(part, name, file) === undefined) {
        const message = `the limit "${name}" is per ${part}, but "${match}" has no :${part}; name a segment :${part} or take the limit out`
        yield { path: [...path, j], message }
      }
    }
  }
}
