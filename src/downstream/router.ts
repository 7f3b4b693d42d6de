import type { Limit } from '../limit/limit.ts'
import { canonicalEscapes, foldCase, hidingSegment, segmentsOf } from './target.ts'

/** The methods, host and path that a route takes. */
export interface Pattern {
  /** In upper case; undefined takes every method. `GET` takes `HEAD` too, as the frameworks behind do. */
  readonly methods: ReadonlySet<string> | undefined
  /** In lower case, without port; undefined takes every host. */
  readonly host: string | undefined
  /** The hosts that a pattern without one takes; undefined takes every host. */
  readonly hosts?: readonly string[] | undefined
  readonly segments: readonly Segment[]
  /** Does a last `*` take any further segments? */
  readonly rest: boolean
}

/** A literal in folded case, or the name of the one segment that it takes. */
export type Segment = { readonly literal: string } | { readonly param: string }

/** What a matching request gets. */
export interface Route extends Pattern {
  /** The pattern as configured: the route's name in logs and metrics. */
  readonly match: string
  /** The name of the upstream that answers; undefined where the gateway itself responds. */
  readonly upstream?: string | undefined
  /** What the gateway itself responds with, where no upstream answers: the caller's own limits. */
  readonly respond?: 'limits' | undefined
  readonly authenticate: 'none' | 'bearer' | 'par'
  /** What a bearer's token must have, all of it. */
  readonly scope: readonly string[]
  readonly limits: readonly Limit[]
  /** Most bytes of a request body. */
  readonly maxBody: number
  /** Milliseconds to the head of the answer and between the bytes of its body; the upstream's where undefined. */
  readonly timeoutMs: number | undefined
}

/** The path parameters of a request: name → segment in canonical spelling. */
export type Params = Readonly<Record<string, string>>

export type Match<R extends Pattern> =
  | { readonly route: R; readonly params: Params }
  /** No route takes the method: the methods that the path takes, and the first route that takes the path, where one was looked for. */
  | { readonly allow: readonly string[]; readonly nearest: R | undefined }

/** Finds what a request gets; undefined where nothing takes its path. `host` is in lower case, `segments` are canonical. */
export type Router<R extends Pattern> = (
  method: string,
  host: string,
  segments: readonly string[],
) => Match<R> | undefined

/**
 * Routes by the first match, but for a path with a `par` route: nothing but what its guard checks gets there, whatever other
 * routes would let through, and nothing at all with something behind it that a backend might pass over.
 */
export function createRouter<R extends Route>(routes: readonly R[]): Router<R> {
  const guarded = routes.filter(({ authenticate }) => authenticate === 'par')
  const deepest = Math.max(0, ...routes.map((route) => route.segments.length))
  return (method, host, segments) => {
    const folded = segments.slice(0, deepest).map(foldCase)
    if (guarded.some((route) => isBehind(route, host, segments, folded))) return undefined
    if (method !== 'POST') {
      const nearest = guarded.find((route) => takePath(route, host, segments, folded) !== undefined)
      if (nearest !== undefined) return { allow: ['POST'], nearest }
      if (!METHODS.has(method)) return { allow: [...METHODS], nearest: undefined }
    }
    return matchRoute(routes, method, host, segments, folded)
  }
}

/** A dot, comma, plus or blank, a mark that ends a path once it is decoded, or what is not ASCII, and so may not be seen. */
const PASSED_OVER = /^(?:[.,+ ?#;]|[^ -~])/

/** Does this begin with the path of a route, but for what stands behind its last literal? */
function isBehind(
  route: Pattern,
  host: string,
  segments: readonly string[],
  folded: readonly string[],
): boolean {
  const last = route.segments.length - 1
  const want = route.segments[last]
  if (want === undefined || 'param' in want || segments.length <= last) return false
  const have = folded[last]!
  return (
    have.startsWith(want.literal) &&
    PASSED_OVER.test(have.slice(want.literal.length)) &&
    takePath(route, host, segments.slice(0, last + 1), [...folded.slice(0, last), want.literal]) !== undefined
  )
}

/** The first of `routes` that takes the request; what the path would allow; or undefined where nothing takes the path. */
export function matchRoute<R extends Pattern>(
  routes: readonly R[],
  method: string,
  host: string,
  segments: readonly string[],
  folded: readonly string[] = segments.map(foldCase),
): Match<R> | undefined {
  let allow: Set<string> | undefined
  let nearest: R | undefined
  for (const route of routes) {
    const params = takePath(route, host, segments, folded)
    if (params === undefined) continue
    if (route.methods === undefined || route.methods.has(method)) return { route, params }
    allow ??= new Set()
    nearest ??= route
    for (const taken of route.methods) allow.add(taken)
  }
  return allow && nearest && { allow: [...allow].toSorted(), nearest }
}

const NO_PARAMS: Params = Object.freeze({})

/** The parameters of a path that the pattern takes, by whatever method. */
function takePath(
  pattern: Pattern,
  host: string,
  segments: readonly string[],
  folded: readonly string[],
): Params | undefined {
  if (!takesHost(pattern, host)) return undefined
  const { segments: wanted, rest } = pattern
  if (segments.length < wanted.length || (!rest && segments.length > wanted.length)) return undefined
  let params: Record<string, string> | undefined
  for (let i = 0; i < wanted.length; i++) {
    const want = wanted[i]!
    if ('param' in want) {
      params ??= Object.create(null) as Record<string, string>
      params[want.param] = segments[i]!
    } else if (want.literal !== folded[i]) return undefined
  }
  return params ?? NO_PARAMS
}

/** Does a pattern take this host, in lower case? */
export function takesHost({ host: named, hosts }: Pattern, host: string): boolean {
  return named === undefined ? hosts === undefined || hosts.includes(host) : named === host
}

/** The hosts that are served by name: those that are listed, and those of routes. */
export function servedHosts(
  routes: readonly Pattern[],
  listed: readonly string[],
): { readonly serves: (host: string) => boolean; readonly servesOthers: boolean } {
  const known = new Set([...listed, ...routes.flatMap(({ host }) => host ?? [])])
  return {
    serves: (host) => known.has(host),
    servesOthers: routes.every(({ hosts }) => hosts === undefined),
  }
}

const PATTERN = /^(?:([A-Za-z]+(?:,[A-Za-z]+)*) +)?([^/\s]*)(\/\S*)$/
/** The methods that the gateway takes at all; it answers any other itself. */
export const METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
])
const LITERAL = /^(?:[A-Za-z0-9._~!$&'()*+,=@:-]|%[0-9A-F]{2})+$/
const PARAM = /^:[A-Za-z_][A-Za-z0-9_]*$/
const HOST = /^(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)$/

/** Reads `[METHOD[,METHOD]] [host]/path`; a string says what is wrong with it. */
export function parsePattern(text: string): Pattern | string {
  const parts = PATTERN.exec(text)
  if (parts === null) return 'write "[METHOD[,METHOD]] [host]/path", such as "POST /sync/:connection"'
  const methods = parts[1]?.toUpperCase().split(',')
  const unknown = methods?.find((method) => !METHODS.has(method))
  if (unknown !== undefined)
    return `"${unknown}" is no method that a route takes; use ${[...METHODS].join(', ')}`
  const host = parts[2]!.toLowerCase()
  if (host !== '' && !HOST.test(host))
    return `"${parts[2]!.replace(/^.*@/, '***@')}" is no host name; leave the port out`

  const hidden = hidingSegment(parts[3]!)
  if (hidden !== undefined) return `the path cannot match; write it without ${hidden}`

  const written = [...segmentsOf(parts[3]!)]
  const rest = written.at(-1) === '*'
  if (rest) written.pop()
  const segments: Segment[] = []
  const names = new Set<string>()
  for (const segment of written) {
    if (PARAM.test(segment)) {
      const param = segment.slice(1)
      if (names.has(param)) return `the parameter ":${param}" stands twice; give each its own name`
      if (param === 'client' || param === 'user' || param === 'ip') {
        return `":${param}" would hide the caller's own ${param} in a limit's "per"; choose another name`
      }
      names.add(param)
      segments.push({ param })
    } else if (segment.includes('*')) {
      return '"*" stands only as the last segment and takes the rest of the path'
    } else if (segment.startsWith(':') || !LITERAL.test(segment) || segment === '.' || segment === '..') {
      return `the segment "${segment}" cannot match; write plain characters, ":name" or a last "*"`
    } else if (canonicalEscapes(segment) !== segment) {
      return `the segment "${segment}" cannot match; write it as "${canonicalEscapes(segment) ?? 'plain characters'}"`
    } else {
      segments.push({ literal: foldCase(segment) })
    }
  }
  return {
    methods: methods && new Set(methods.includes('GET') ? [...methods, 'HEAD'] : methods),
    host: host === '' ? undefined : host,
    segments,
    rest,
  }
}

/** Does `earlier` take every request that `later` takes, so that `later` can never match? */
export function hides(earlier: Pattern, later: Pattern): boolean {
  if (earlier.methods !== undefined) {
    if (later.methods === undefined) return false
    for (const method of later.methods) if (!earlier.methods.has(method)) return false
  }
  if (earlier.host !== undefined && earlier.host !== later.host) return false
  if (earlier.segments.length > later.segments.length) return false
  if (!earlier.rest && (later.rest || earlier.segments.length < later.segments.length)) return false
  return earlier.segments.every((want, i) => {
    const other = later.segments[i]!
    return 'param' in want || ('literal' in other && other.literal === want.literal)
  })
}
