import { groupBy } from '../runtime/grouping.ts'
import { isWithin, matchesPath, METHODS, type Pattern } from './pattern.ts'
import { type AskedPath, createRouteIndex, type RouteIndex } from './route-index.ts'
import { foldCase } from './target.ts'

export interface Route extends Pattern {
  /** The configured pattern; the route's name in the metrics if it has none. */
  readonly match: string
  readonly name?: string | undefined
  /** Labels of its metrics, such as its team. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  readonly upstream?: string | undefined
  /** Set if the gateway itself answers. */
  readonly respond?: 'limits' | 'health' | 'resource' | 'unavailable' | undefined
  /** The team whose file has the route; undefined for the main file. */
  readonly team?: string | undefined
  readonly authenticate: 'none' | 'bearer' | 'key' | 'bearer or key' | 'par' | 'authorization'
  readonly scope: readonly string[]
  /** The path parameters that its limits count by; none if absent. */
  readonly counted?: readonly string[]
  readonly maxBody: number
  /** True if GET, HEAD and OPTIONS may have a body, too. */
  readonly body?: boolean
  /** The protocol to which its requests may switch. */
  readonly upgrade?: 'websocket' | undefined
  /** Timeout of the response head, and between the bytes of its body; the upstream's if undefined. */
  readonly timeoutMs?: number | undefined
}

/** A team, and the pattern of every request that only the routes of its file serve. */
export interface Owner {
  readonly name: string
  readonly owned: Pattern
  /** False if the file has mistakes and no valid version. */
  readonly isServed: boolean
}

/** Path parameters of a request: name → segment in canonical spelling. */
export type Params = Readonly<Record<string, string>>

/** Undefined if no route matches the path. */
export type Match<R> =
  | { readonly route: R; readonly params: Params }
  /** Methods that the path allows, if no route matches the method, and the first route that matches the path. */
  | { readonly allow: readonly string[]; readonly nearest: R | undefined }
  | undefined

/** Returns the first route that matches a request: its `host` is in lower case, its `segments` are canonical. */
export type Router<R> = (method: string, host: string, segments: readonly string[]) => Match<R>

/** True for routes whose callers may authenticate with an access token. */
export const acceptsTokens = ({ authenticate }: Pick<Route, 'authenticate'>): boolean =>
  authenticate === 'bearer' || authenticate === 'bearer or key'

/** True for routes whose callers may authenticate with an API key. */
export const acceptsKeys = ({ authenticate }: Pick<Route, 'authenticate'>): boolean =>
  authenticate === 'key' || authenticate === 'bearer or key'

/** True for routes of identity endpoints whose parameters the gateway checks. */
export const isGuarded = ({ authenticate }: Pick<Route, 'authenticate'>): boolean =>
  authenticate === 'par' || authenticate === 'authorization'

/** The question to the index about a request. */
interface AskedRequest extends AskedPath {
  readonly method: string
}

/**
 * Creates the router. The path of the resource's metadata belongs to its route, even if other
 * routes match. The path of a guarded route accepts only what its guard checks; with a suffix that a
 * backend might ignore, it matches no route. What a team owns is matched only with its own routes; if
 * its file has no valid version, a route of the main file that is entirely below its claim is kept.
 */
export function createRouter<R extends Route>(
  routes: readonly R[],
  owners: readonly Owner[] = [],
): Router<R> {
  const guarded = routes.filter(isGuarded)
  const preferred = createRouteIndex([...routes.filter(({ respond }) => respond === 'resource'), ...guarded])
  const guardedParents = createRouteIndex(guarded.flatMap(parentOf))
  const ofTeams = groupBy(routes, ({ team }) => team)
  const ofMainFile = ofTeams.get(undefined) ?? []
  const shared = createRouteIndex(ofMainFile)
  const teams = createRouteIndex(
    owners.map(({ name, owned, isServed }) => ({
      ...owned,
      routes: createRouteIndex([
        ...ofMainFile.filter((route) => !isServed && isWithin(route, owned)),
        ...(ofTeams.get(name) ?? []),
      ]),
    })),
  )
  const known = new Set([...METHODS, ...routes.flatMap(({ methods = [] }) => [...methods])])
  const patterns: readonly Pattern[] = [...routes, ...owners.map(({ owned }) => owned)]
  const deepest = patterns.reduce((most, { segments }) => Math.max(most, segments.length), 0)
  return (method, host, segments) => {
    const folded = segments.slice(0, deepest).map(foldCase)
    const asked = { method, host, segments: folded, length: segments.length }
    if (guardedParents.first(asked, hasIgnorableSuffix) !== undefined) return undefined
    const found = matchIn(preferred, asked, segments)
    if (found !== undefined) return found
    if (!known.has(method)) return { allow: [...METHODS], nearest: undefined }
    const { routes: own } = teams.first(asked, anyMethod) ?? { routes: shared }
    return matchIn(own, asked, segments)
  }
}

/** Returns the name of the team that owns a request; undefined if the main file's routes serve it. */
export function ownerOf(
  owners: readonly Owner[],
  { host, segments }: { readonly host: string; readonly segments: readonly string[] },
): string | undefined {
  const folded = segments.map(foldCase)
  return owners.find(({ owned }) => matchesPath(owned, host, folded, segments.length))?.name
}

/** The path before the last segment of a guarded route, and that segment. */
interface Parent extends Pattern {
  readonly last: string
}

/** Returns the parent of a route that ends in a literal, with or without a `*`. */
function parentOf(route: Pattern): readonly Parent[] {
  const last = route.segments.at(-1)
  if (last === undefined || 'param' in last) return []
  return [{ ...route, segments: route.segments.slice(0, -1), rest: true, last: last.literal }]
}

/**
 * Suffixes that a backend might ignore: punctuation, a character that ends a decoded path, or an
 * invisible character.
 */
const IGNORABLE_SUFFIX = /^(?:[.,+ ?#;]|[^ -~])/

/** True if the segment after a parent is its last one with such a suffix. */
function hasIgnorableSuffix({ segments, last }: Parent, asked: AskedPath): boolean {
  const have = asked.segments[segments.length]
  return have?.startsWith(last) === true && IGNORABLE_SUFFIX.test(have.slice(last.length))
}

const allowsMethod = ({ methods = METHODS }: Pattern, { method }: AskedRequest): boolean =>
  methods.has(method)
const anyMethod = (): boolean => true

/**
 * Returns the first route of an index that matches, or the methods that the path allows; undefined if
 * no route matches the path.
 */
function matchIn<R extends Pattern>(
  index: RouteIndex<R>,
  asked: AskedRequest,
  segments: readonly string[],
): Match<R> {
  const route = index.first(asked, allowsMethod)
  if (route !== undefined) return { route, params: paramsOf(route, segments) }
  const nearest = index.first(asked, anyMethod)
  if (nearest === undefined) return undefined
  const allow = new Set(index.all(asked).flatMap(({ methods = METHODS }) => [...methods]))
  return { allow: [...allow].toSorted(), nearest }
}

const NO_PARAMS: Params = Object.freeze(Object.create(null) as Params)

function paramsOf({ segments: wanted }: Pattern, segments: readonly string[]): Params {
  if (!wanted.some((want) => 'param' in want)) return NO_PARAMS
  const params = Object.create(null) as Record<string, string>
  for (const [i, want] of wanted.entries()) if ('param' in want) params[want.param] = segments[i]!
  return params
}
