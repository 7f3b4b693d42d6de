import { badRequest, type Refusal, ambiguousFraming } from '../errors.ts'
import { memoize } from '../runtime/memoize.ts'

/** A request target: its path in canonical spelling, which is matched, counted and logged, and as it was received. */
export interface Target {
  /** Starts with `/`; characters that may be raw are decoded, escapes are in upper case. */
  readonly path: string
  readonly segments: readonly string[]
  /** The unchanged query with its `?`, or the empty string. */
  readonly query: string
  /** The unchanged path and query, which are forwarded: signatures cover them (RFC 9421 section 2.2.6). */
  readonly received: string
  /** True if servers may read the path in more than one way; `matchReadings` compares them. */
  readonly isAmbiguous: boolean
  /** The host in lower case, without the port. */
  readonly host: string
}

/**
 * A path of visible ASCII characters and escapes. Other than in RFC 3986 section 3.3, clients also
 * send `"<>[\]^{|}` and the grave accent raw.
 */
const PATH = /^\/[!"$&->@-~]*(?:%[0-9A-Fa-f]{2}[!"$&->@-~]*)*$/
/** A path that is canonical as it is, as most are. */
const PLAIN_PATH = /^\/[A-Za-z0-9._~!$&'()*+,=:@;/-]*$/
const ESCAPES = /(?:%[0-9A-Fa-f]{2})+/g
/** Characters of a segment that are escaped in a canonical path, `;` unless it is raw. */
const ESCAPED_IN_SEGMENT = /[^A-Za-z0-9._~!$&'()*+,=:@-]/gu
const ESCAPED_IN_PATH = /[^A-Za-z0-9._~!$&'()*+,=:@;/%-]/g
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/
const DOTS = /\/\.\.?(?:\/|$)/
/**
 * The source of what ends the name of a script, after which servers take the rest of the path as an
 * argument (`PATH_INFO`, RFC 3875 section 4.1.5): PHP, ASP and ASP.NET, ISAPI, CGI, mod_wsgi, SSI,
 * ColdFusion. Not `.jsp`, `.do`, `.action` and `.jsf`: a servlet container compares only the ending of
 * the last segment (Servlet 6.0 section 12.2).
 */
export const SCRIPT_ENDING = String.raw`\.(?:php\d?|phtml|aspx?|ashx|asmx|axd|svc|dll|exe|f?cgi|pl|py|rb|wsgi|shtml|cf[cm]|cfml)`
/** The source of escapes that servers decode once, twice or never, or for the next server. */
export const ESCAPE_OF_SEVERAL_READINGS = '%(?:2[35F]|3[BF]|5C)'
/**
 * What servers read in more than one way: escapes, path parameters, empty segments, a segment after
 * a script, and `(S(…))`. `readings.ts` has the ways.
 */
const AMBIGUOUS = new RegExp(String.raw`${ESCAPE_OF_SEVERAL_READINGS}|;|//|${SCRIPT_ENDING}/.|\([a-z]\(`, 'i')
const QUERY = /^\?[\u0021\u0022\u0024-\u007e\u0080-\u00ff]*$/
/** A host with an optional port (RFC 9110 section 4.2.3). */
const HOST = /^(?:(\[[0-9A-Fa-f:.]+\])|([A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?))(?::(\d{0,5}))?$/
const NO_HOST = { host: '', port: '' }
/** An absolute-form target: its host with the port, and the rest. */
export const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i

/**
 * Parses a request target (RFC 9112 section 3.2) and its Host fields, or refuses it with a 400 if no
 * server may get it. The Host field, and the host of an absolute-form target, must be served. Without
 * a Host field, which only HTTP/1.0 may lack, the host is that of an absolute-form target (RFC 9112
 * section 3.2.2), else empty: then any host must be served.
 */
export function parseTarget(
  rawTarget: string,
  hosts: readonly string[],
  served: Served,
  mayLackHost = false,
): Target | Refusal {
  const { serves, servesOthers } = served
  const isAbsolute = rawTarget.charCodeAt(0) !== 0x2f
  const lacksHost = hosts.length === 0 && mayLackHost && (servesOthers || isAbsolute)
  if (hosts.length !== 1 && !lacksHost) return ambiguousFraming('Send exactly one Host header.')
  let field = lacksHost ? NO_HOST : parseHost(hosts[0]!)
  if (field === undefined) return badRequest('The Host header is not a host with an optional port.')

  let target = rawTarget
  if (isAbsolute) {
    const [, host, path] = (ABSOLUTE.exec(target) ?? ['', '', '']) as [string, string, string]
    const authority = parseHost(host)
    if (authority === undefined || !(servesOthers || serves(authority.host)))
      return badRequest('The request target must start with "/", or name a host served here.')
    if (lacksHost) field = authority
    else if (authority.host !== field.host || authority.port !== field.port)
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
  const path = canonicalPath(rawPath)
  if (path === undefined)
    return badRequest('The path holds a character or a percent-encoding that is not allowed there.')
  if (hasDotSegment(path)) return badRequest('The path holds a dot segment.')
  const isAmbiguous = AMBIGUOUS.test(path) || query.startsWith('?/')
  return { path, segments: segmentsOf(path), query, received: target, isAmbiguous, host: field.host }
}

/** True if a canonical path holds a segment `.` or `..`. */
export const hasDotSegment = (path: string): boolean => path.includes('/.') && DOTS.test(path)

/**
 * Returns the parts between the slashes, ignoring a final slash. `split`: 1 to 2 % more of a refused
 * call, as it calls the runtime (`npm run bench:micro -- segments`).
 */
export function segmentsOf(path: string): readonly string[] {
  const segments: string[] = []
  let start = 1
  for (let end = path.indexOf('/', start); end !== -1; end = path.indexOf('/', start)) {
    segments.push(path.slice(start, end))
    start = end + 1
  }
  if (start < path.length) segments.push(path.slice(start))
  return segments
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
 * Returns the canonical spelling of a path: characters that may be raw are decoded, all others are
 * escaped in upper case. Undefined if it is not a path, or has a control character or invalid UTF-8.
 */
export function canonicalPath(path: string): string | undefined {
  if (PLAIN_PATH.test(path)) return path
  if (!PATH.test(path)) return undefined
  const escaped = path.replaceAll(ESCAPED_IN_PATH, encodeURIComponent)
  let isValid = true
  const canonical = escaped.replaceAll(ESCAPES, (run) => {
    const text = decodeSegment(run)
    // Invalid UTF-8 is not decoded.
    if (text === run || CONTROL.test(text)) isValid = false
    return text.replaceAll(ESCAPED_IN_SEGMENT, encodeURIComponent)
  })
  return isValid ? canonical : undefined
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
const SECRET_START = /;|%(?:25)*(?:3[bf]|23)/i
/** Matches the start of a host in a path, with a password if there is an `@`. */
const AUTHORITY_START = /\/\/|%5C/

/**
 * Returns the part of a canonical path that may be logged: up to what an upstream may treat as the
 * end of the path; `…` replaces the rest.
 */
export function loggablePath(path: string): string {
  const secret = path.search(SECRET_START)
  const authority = path.includes('@') ? path.search(AUTHORITY_START) : -1
  const isAuthorityFirst = authority !== -1 && (secret === -1 || authority < secret)
  const end = isAuthorityFirst ? authority : secret
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
