import { badRequest, type Refusal, ambiguousFraming } from '../errors.ts'
import { memoize } from '../runtime/memoize.ts'

/** An unambiguous request target, which is matched and forwarded in this spelling. */
export interface Target {
  /** Starts with `/`; unreserved characters are decoded, escapes are in upper case. */
  readonly path: string
  readonly segments: readonly string[]
  /** The unchanged query with its `?`, or the empty string. */
  readonly query: string
  /** The host in lower case, without the port. */
  readonly host: string
}

/** A path of RFC 3986 section 3.3, without `;`. */
const PATH = /^\/[A-Za-z0-9._~!$&'()*+,=:@/-]*(?:%[0-9A-Fa-f]{2}[A-Za-z0-9._~!$&'()*+,=:@/-]*)*$/
const ESCAPES = /(?:%[0-9A-Fa-f]{2})+/g
const NOT_RAW_IN_SEGMENT = /[^A-Za-z0-9._~!$&'()*+,=:@-]/gu
/** Characters whose escaped form servers decode once, twice or never. */
// oxlint-disable-next-line no-control-regex
const AMBIGUOUS = /[/\\%;\u0000-\u001f\u007f-\u009f]/
const DOTS = /\/\.\.?(?:\/|$)/
const QUERY = /^\?[\u0021\u0022\u0024-\u007e\u0080-\u00ff]*$/
/** A host with an optional port (RFC 9110 section 4.2.3). */
const HOST = /^(?:(\[[0-9A-Fa-f:.]+\])|([A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?))(?::(\d{0,5}))?$/
export const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i

/**
 * Parses a request target (RFC 9112 section 3.2) and its Host fields into the canonical target, or
 * refuses it as ambiguous. An absolute-form target must name a host that `serves` accepts; unless
 * `servesOthers` is true, so must the Host field.
 */
export function parseTarget(rawTarget: string, hosts: readonly string[], served: Served): Target | Refusal {
  const { serves, servesOthers } = served
  if (hosts.length !== 1) return ambiguousFraming('Send exactly one Host header.')
  const field = parseHost(hosts[0]!)
  if (field === undefined) return badRequest('The Host header is not a host with an optional port.')

  let target = rawTarget
  if (target.charCodeAt(0) !== 0x2f) {
    const [, host, path] = (ABSOLUTE.exec(target) ?? ['', '', '']) as [string, string, string]
    const authority = parseHost(host)
    if (authority === undefined || !serves(authority.host))
      return badRequest('The request target must start with "/", or name a host served here.')
    if (authority.host !== field.host || authority.port !== field.port)
      return badRequest('The request target and the Host header name different hosts.')
    target = path.startsWith('/') ? path : `/${path}`
  }
  if (!servesOthers && !serves(field.host))
    return badRequest('The Host header names a host that is not served here.', {
      cause: `the host ${field.host} is not in listen.hosts, and no route names it`,
    })
  const mark = target.indexOf('?')
  const rawPath = mark === -1 ? target : target.slice(0, mark)
  const query = mark === -1 ? '' : target.slice(mark)
  if (query !== '' && !QUERY.test(query))
    return badRequest('The query holds a character that must be percent-encoded.')
  const path = PATH.test(rawPath) ? canonicalEscapes(rawPath) : undefined
  if (path === undefined)
    return badRequest('The path holds a character or a percent-encoding that is not allowed there.')
  if (path.includes('//') || (path.includes('/.') && DOTS.test(path)))
    return badRequest('The path holds an empty segment or a dot segment.')
  if (DROPPED_PARTS.test(path))
    return badRequest('The path must not contain a segment after ".php", or "(S(…))".')
  if (query.startsWith('?/') && PATH_IN_QUERY.test(path))
    return badRequest('The query must not start with "/" here: servers could use it as the path.')
  return { path, segments: segmentsOf(path), query, host: field.host }
}

/**
 * Path parts that frameworks drop: PHP frameworks drop a script (`/a.php/…`), ASP.NET drops a
 * session id without a cookie (`(S(…))`).
 */
export const DROPPED_PARTS = /\.php\/.|\([a-z]\(/i
/** Paths for which PHP frameworks use the query as the path: `/`, or a script with nothing after it. */
const PATH_IN_QUERY = /^\/$|\.php\/?$/i

/** Returns the parts between the slashes, ignoring a final slash. */
export function segmentsOf(path: string): readonly string[] {
  const end = path.endsWith('/') ? path.length - 1 : path.length
  return end === 0 ? [] : path.slice(1, end).split('/')
}

export function decodeSegment(segment: string): string {
  if (!segment.includes('%')) return segment
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

/**
 * Decodes a canonical segment and folds its case. Some letters share only the upper case (s, ſ),
 * some only the lower (ß, ẞ).
 */
export function foldCase(segment: string): string {
  if (!segment.includes('%')) return segment.toLowerCase()
  return decodeSegment(segment).toLowerCase().toUpperCase().toLowerCase()
}

/**
 * Decodes the characters that need no escape, and writes the other escapes in upper case; undefined
 * if the path is ambiguous.
 */
export function canonicalEscapes(path: string): string | undefined {
  if (!path.includes('%')) return path
  let isAmbiguous = false
  const canonical = path.replace(ESCAPES, (run) => {
    const text = decodeSegment(run)
    // Invalid UTF-8 keeps its `%`, which is ambiguous.
    if (AMBIGUOUS.test(text)) isAmbiguous = true
    return text.replace(NOT_RAW_IN_SEGMENT, encodeURIComponent)
  })
  return isAmbiguous ? undefined : canonical
}

function readHost(value: string) {
  const [, ipv6, name = ipv6, port = ''] = HOST.exec(value) ?? []
  return name === undefined ? undefined : { host: name.toLowerCase().replace(/\.$/, ''), port }
}

/** Parses a Host value (RFC 9110 section 7.2) into lower case, without the root dot; undefined if it is invalid. */
export const parseHost = memoize(readHost, 1000, 260)

/** The hosts that are served. */
export interface Served {
  /** True for a host, in lower case and without its port, that is listed or named by a route. */
  serves(host: string): boolean
  /** True if some route is for any host, so that requests to other hosts are served, too. */
  readonly servesOthers: boolean
}

/**
 * Returns which hosts are served by name, `listed` ones and those of routes, and whether requests
 * to other hosts are served, too.
 */
export function servedHosts(
  routes: readonly { readonly host: string | undefined; readonly hosts?: unknown }[],
  listed: readonly string[],
): Served {
  const served = new Set([...listed, ...routes.flatMap(({ host }) => host ?? [])])
  const servesOthers = routes.every(({ hosts }) => hosts === undefined)
  return { serves: (host) => served.has(host), servesOthers }
}

/**
 * The start of a query, a fragment or a parameter, which may contain a token, percent-encoded once
 * or repeatedly.
 */
const SECRET_START = /%(?:25)*(?:3[bf]|23)/i

/**
 * Returns the part of a canonical path that may be logged: up to an escape that an upstream may
 * treat as the end of the path; `…` replaces the rest.
 */
export function loggablePath(path: string): string {
  const end = path.includes('%') ? path.search(SECRET_START) : -1
  return end === -1 ? path : `${path.slice(0, end)}…`
}

/** Scheme, userinfo, host and port of a target that does not start with its path. */
const AUTHORITY = /^(?![/*])(?:[^/?#;]*:[/\\]+)?[^/?#;\\]*/

/**
 * Returns the part of a refused target that may be logged: the path without a query, and up to any
 * fragment, escape or userinfo, shown as `…`.
 */
export function loggableTarget(target: string): string {
  const path = target.replace(AUTHORITY, '')
  const end = path.search(/[?#;\\%@]|\/\//)
  return end === -1 ? path : `${path.slice(0, end)}${path[end] === '?' ? '' : '…'}`
}
