import { isWithin, matchesPath, METHODS, type Pattern } from '../../src/downstream/pattern.ts'
import { isGuarded, type Match, type Owner, type Route, type Router } from '../../src/downstream/router.ts'
import { foldCase } from '../../src/downstream/target.ts'

type Request = readonly [method: string, host: string, segments: readonly string[]]

const isOnPath = (pattern: Pattern, [, host, segments]: Request): boolean =>
  matchesPath(pattern, host, segments.map(foldCase), segments.length)

/** Tries routes one after the other. */
function scan<R extends Pattern>(routes: readonly R[], request: Request): Match<R> {
  const [method, , segments] = request
  const onPath = routes.filter((route) => isOnPath(route, request))
  const route = onPath.find(({ methods = METHODS }) => methods.has(method))
  if (route !== undefined) {
    const params = route.segments.flatMap((one, i) => ('param' in one ? [[one.param, segments[i]!]] : []))
    return { route, params: Object.fromEntries(params) }
  }
  if (onPath.length === 0) return undefined
  const allow = new Set(onPath.flatMap(({ methods = METHODS }) => [...methods]))
  return { allow: [...allow].toSorted(), nearest: onPath[0] }
}

/** True if a path is that of a guarded route with a suffix that a backend might ignore. */
function hasSuffix(route: Route, [method, host, segments]: Request): boolean {
  const last = route.segments.at(-1)
  const have = segments[route.segments.length - 1]
  if (last === undefined || 'param' in last || have === undefined) return false
  const before = segments.slice(0, route.segments.length - 1)
  if (!isOnPath(route, [method, host, [...before, encodeURIComponent(last.literal)]])) return false
  return (
    foldCase(have).startsWith(last.literal) &&
    /^(?:[.,+ ?#;]|[^ -~])/.test(foldCase(have).slice(last.literal.length))
  )
}

/** Creates a router without an index, which the real one must agree with. */
export function scanningRouter<R extends Route>(
  routes: readonly R[],
  owners: readonly Owner[] = [],
): Router<R> {
  const known = new Set([...METHODS, ...routes.flatMap(({ methods = [] }) => [...methods])])
  const shared = routes.filter(({ team }) => team === undefined)
  return (...request) => {
    const guarded = routes.filter(isGuarded)
    if (guarded.some((route) => hasSuffix(route, request))) return undefined
    const preferred = scan([...routes.filter(({ respond }) => respond === 'resource'), ...guarded], request)
    if (preferred !== undefined) return preferred
    if (!known.has(request[0])) return { allow: [...METHODS], nearest: undefined }
    const owner = owners.find(({ owned }) => isOnPath(owned, request))
    if (owner === undefined) return scan(shared, request)
    const kept = owner.isServed ? [] : shared.filter((route) => isWithin(route, owner.owned))
    return scan([...kept, ...routes.filter(({ team }) => team === owner.name)], request)
  }
}
