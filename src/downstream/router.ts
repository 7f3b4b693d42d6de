import { METHODS as PARSED_METHODS } from 'node:http'
import { canonicalPath, ESCAPE_OF_SEVERAL_READINGS, foldCase, parseHost, segmentsOf } from './target.ts'

/** A literal in folded case, or the name of a parameter, which matches one segment. */
type Segment = { readonly literal: string } | { readonly param: string }

export interface Pattern {
  /** Methods in upper case; undefined matches `METHODS`. `GET` includes `HEAD`, as in most frameworks. */
  readonly methods: ReadonlySet<string> | undefined
  /** Host in lower case, without port; undefined matches `hosts`. */
  readonly host: string | undefined
  /** Hosts of a pattern that names none; undefined matches all. */
  readonly hosts?: readonly string[] | undefined
  readonly segments: readonly Segment[]
  /** True if a last `*` matches any further segments. */
  readonly rest: boolean
}

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
  readonly authenticate: 'none' | 'bearer' | 'par' | 'authorization'
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

/** The methods of a route that names none. */
export const METHODS: ReadonlySet<string> = new Set('GET HEAD POST PUT PATCH DELETE OPTIONS'.split(' '))

/** True for a method in upper case that a route may name: CONNECT and TRACE are for proxies themselves. */
export const isRoutable = (method: string): boolean =>
  PARSED_METHODS.includes(method) && method !== 'CONNECT' && method !== 'TRACE'

/** All methods that a route may name, the usual ones first. */
export const ROUTABLE_METHODS: readonly string[] = [
  ...METHODS,
  ...PARSED_METHODS.filter((method) => !METHODS.has(method) && isRoutable(method)),
]

/** The methods that a route may name, for messages. */
export const ROUTABLE = `${[...METHODS].join(', ')}, or another that Node.js parses, such as PROPFIND, but not CONNECT and TRACE`

/** Returns the first route that matches a request: its `host` is in lower case, its `segments` are canonical. */
export type Router<R> = (method: string, host: string, segments: readonly string[]) => Match<R>

/** True for routes of identity endpoints whose parameters the gateway checks. */
export const isGuarded = ({ authenticate }: Pick<Route, 'authenticate'>): boolean =>
  authenticate === 'par' || authenticate === 'authorization'

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
  const shared = routes.filter(({ team }) => team === undefined)
  const teams = owners.map(({ name, owned, isServed }) => ({
    owned,
    routes: [
      ...shared.filter((route) => !isServed && isWithin(route, owned)),
      ...routes.filter(({ team }) => team === name),
    ],
  }))
  const preferred = [...routes.filter(({ respond }) => respond === 'resource'), ...guarded]
  const known = new Set([...METHODS, ...routes.flatMap(({ methods = [] }) => [...methods])])
  const patterns: readonly Pattern[] = [...routes, ...owners.map(({ owned }) => owned)]
  const deepest = Math.max(0, ...patterns.map((pattern) => pattern.segments.length))
  return (method, host, segments) => {
    const folded = segments.slice(0, deepest).map(foldCase)
    for (const route of guarded) if (hasIgnorableSuffix(route, host, folded)) return undefined
    const found = preferred[0] && matchRoute(preferred, method, host, segments, folded)
    if (found !== undefined) return found
    if (!known.has(method)) return { allow: [...METHODS], nearest: undefined }
    for (const team of teams)
      if (matchesPath(team.owned, host, folded, segments.length))
        return matchRoute(team.routes, method, host, segments, folded)
    return matchRoute(shared, method, host, segments, folded)
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

/**
 * Suffixes that a backend might ignore: punctuation, a character that ends a decoded path, or an
 * invisible character.
 */
const IGNORABLE_SUFFIX = /^(?:[.,+ ?#;]|[^ -~])/

function hasIgnorableSuffix(route: Pattern, host: string, folded: readonly string[]): boolean {
  const last = route.segments.length - 1
  const want = route.segments[last]
  const have = folded[last]
  if (want === undefined || 'param' in want || have?.startsWith(want.literal) !== true) return false
  if (!IGNORABLE_SUFFIX.test(have.slice(want.literal.length))) return false
  return matchesPath(route, host, [...folded.slice(0, last), want.literal], last + 1)
}

/**
 * Returns the first of `routes` that matches, or the methods that the path allows; undefined if no
 * route matches the path.
 */
export function matchRoute<R extends Pattern>(
  routes: readonly R[],
  method: string,
  host: string,
  segments: readonly string[],
  folded: readonly string[] = segments.map(foldCase),
): Match<R> {
  for (const route of routes)
    if (matchesPath(route, host, folded, segments.length) && (route.methods ?? METHODS).has(method))
      return { route, params: paramsOf(route, segments) }
  const others = routes.filter((route) => matchesPath(route, host, folded, segments.length))
  if (others.length === 0) return undefined
  const allow = new Set(others.flatMap(({ methods = METHODS }) => [...methods]))
  return { allow: [...allow].toSorted(), nearest: others[0] }
}

/** True if the pattern matches the host, and a path of `length` segments that starts with `folded`. */
function matchesPath(pattern: Pattern, host: string, folded: readonly string[], length: number) {
  const { segments: wanted, rest } = pattern
  if (length < wanted.length || (!rest && length > wanted.length)) return false
  for (let i = 0; i < wanted.length; i++) {
    const want = wanted[i]!
    if ('literal' in want && want.literal !== folded[i]) return false
  }
  return matchesHost(pattern, host)
}

const NO_PARAMS: Params = Object.freeze(Object.create(null) as Params)

function paramsOf({ segments: wanted }: Pattern, segments: readonly string[]): Params {
  if (!wanted.some((want) => 'param' in want)) return NO_PARAMS
  const params = Object.create(null) as Record<string, string>
  for (const [i, want] of wanted.entries()) if ('param' in want) params[want.param] = segments[i]!
  return params
}

export const matchesHost = ({ host: named, hosts }: Pattern, host: string): boolean =>
  named === undefined ? hosts === undefined || hosts.includes(host) : named === host

const PATTERN = /^(?:([A-Za-z-]+(?:,[A-Za-z-]+)*) +)?([^/\s]*)(\/\S*)$/
const PARAM = /^:[A-Za-z_][A-Za-z0-9_]*$/
const DECODED_DIFFERENTLY = new RegExp(ESCAPE_OF_SEVERAL_READINGS, 'i')
const LITERAL = /^(?!:|\.\.?$)(?:[A-Za-z0-9._~!$&'()*+,=@:-]|%[0-9A-F]{2})+$/

/** Parses `[METHOD[,METHOD]] [host]/path`; returns an error message for an invalid pattern. */
export function parsePattern(text: string): Pattern | string {
  const [, listed, named = '', path] = PATTERN.exec(text) ?? []
  if (path === undefined) return 'write "[METHOD[,METHOD]] [host]/path", such as "POST /sync/:id"'
  const methods = listed?.toUpperCase().split(',')
  const unknown = methods?.find((method) => !isRoutable(method))
  if (unknown !== undefined) return `"${unknown}" is not a method that routes can match; use ${ROUTABLE}`
  if (methods?.includes('GET')) methods.push('HEAD')
  const host = parseHost(named)
  if (named !== '' && (host?.port !== '' || named.endsWith(':')))
    return `"${named.replace(/^.*@/, '***@')}" is not a host; begin a path with "/", and write one route for each host, without port and scheme`

  const written = [...segmentsOf(path)]
  const rest = written.at(-1) === '*'
  if (rest) written.pop()
  for (const [i, segment] of written.entries()) {
    const mistake = mistakeIn(segment)
    if (mistake !== undefined) return mistake
    if (segment.startsWith(':') && written.indexOf(segment) !== i)
      return `the parameter "${segment}" occurs twice; give each its own name`
  }
  const segments = written.map((segment) =>
    segment.startsWith(':') ? { param: segment.slice(1) } : { literal: foldCase(segment) },
  )
  return { methods: methods && new Set(methods), host: host?.host, segments, rest }
}

function mistakeIn(segment: string): string | undefined {
  if (PARAM.test(segment)) return undefined
  if (segment.includes('*')) return '"*" must be the last segment; it matches the rest of the path'
  if (!LITERAL.test(segment))
    return `the segment "${segment}" cannot match; write plain characters, ":name" or a last "*"`
  const canonical = DECODED_DIFFERENTLY.test(segment) ? undefined : canonicalPath(`/${segment}`)?.slice(1)
  if (canonical === segment) return undefined
  return `the segment "${segment}" cannot match; write it as "${canonical ?? 'plain characters'}"`
}

/** True if `earlier` matches every request that `later` matches, so that `later` is never reached. */
export function covers(earlier: Pattern, later: Pattern): boolean {
  const { methods } = earlier
  const others = [...(later.methods ?? METHODS)]
  if (!others.every((method) => (methods ?? METHODS).has(method))) return false
  const { host } = later
  if (host === undefined ? earlier.host !== undefined : !matchesHost(earlier, host)) return false
  const more = later.segments.length - earlier.segments.length
  if (more < 0 || (!earlier.rest && (later.rest || more > 0))) return false
  return earlier.segments.every((want, i) => {
    const other = later.segments[i]!
    return 'param' in want || ('literal' in other && other.literal === want.literal)
  })
}

/** True if a pattern matches only requests that `owned` matches, by any method. */
export function isWithin(pattern: Pattern, owned: Pattern): boolean {
  const anyHost = { methods: undefined, host: undefined, hosts: undefined }
  if (!covers({ ...owned, ...anyHost }, { ...pattern, ...anyHost })) return false
  const [hosts, ownedHosts] = [pattern, owned].map((one) => (one.host === undefined ? one.hosts : [one.host]))
  return ownedHosts === undefined || hosts?.every((host) => ownedHosts.includes(host)) === true
}
