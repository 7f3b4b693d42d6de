import { METHODS as PARSED_METHODS } from 'node:http'
import { memoize } from '../runtime/memoize.ts'
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

/** True if the pattern matches the host, and a path of `length` segments that starts with `folded`. */
export function matchesPath(
  pattern: Pattern,
  host: string,
  folded: readonly string[],
  length: number,
): boolean {
  const { segments: wanted, rest } = pattern
  if (length < wanted.length || (!rest && length > wanted.length)) return false
  for (let i = 0; i < wanted.length; i++) {
    const want = wanted[i]!
    if ('literal' in want && want.literal !== folded[i]) return false
  }
  return matchesHost(pattern, host)
}

export const matchesHost = ({ host: named, hosts }: Pattern, host: string): boolean =>
  named === undefined ? hosts === undefined || hosts.includes(host) : named === host

const PATTERN = /^(?:([A-Za-z-]+(?:,[A-Za-z-]+)*) +)?([^/\s]*)(\/\S*)$/
const PARAM = /^:[A-Za-z_][A-Za-z0-9_]*$/
const DECODED_DIFFERENTLY = new RegExp(ESCAPE_OF_SEVERAL_READINGS, 'i')
const LITERAL = /^(?!:|\.\.?$)(?:[A-Za-z0-9._~!$&'()*+,=@:-]|%[0-9A-F]{2})+$/

/** Returns the set of a list of methods; routes with the same list share one set. */
const methodSet = memoize((list): ReadonlySet<string> => new Set(list.split(',')), 100, 300)

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
  return { methods: methods && methodSet(methods.join()), host: host?.host, segments, rest }
}

function mistakeIn(segment: string): string | undefined {
  if (PARAM.test(segment)) return undefined
  if (segment === '')
    return 'an empty segment, as in "//", cannot match; write single slashes, and a host without slashes before it'
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
