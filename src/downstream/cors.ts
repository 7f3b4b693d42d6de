import type { IncomingHttpHeaders } from 'node:http'
import { HIDDEN_FIELDS } from './own-fields.ts'
import type { Reply } from './reply.ts'
import { METHODS, ROUTABLE_METHODS } from './pattern.ts'
import { type Match, type Route } from './router.ts'

/** Settings for the pages that may read the responses of a route. */
export interface CorsSettings {
  /** Origins as browsers send them (RFC 6454 section 6.2), or only `*`. */
  readonly origins: readonly string[]
  /** True if browsers may send cookies; then `origins` has no `*`. */
  readonly credentials: boolean
  /** Time for which browsers may keep the response to a preflight, in milliseconds. */
  readonly maxAgeMs: number
}

/** The CORS fields of responses to one origin, as flat lists; empty for an origin that is not allowed. */
export interface CorsFields {
  /** Fields by which the origin may read the response. */
  readonly allow: readonly string[]
  /** The field that names the gateway's fields that the page may read. */
  readonly expose: readonly string[]
  /** The fields of the gateway's own responses, with `Vary`, as text for `appendFields`. */
  readonly text: string
}

/** Compiled settings. Routes with the same settings share one object. */
export interface Cors {
  readonly maxAgeSecs: number
  fieldsFor(origin: string | undefined): CorsFields
}

export const ALLOW_ORIGIN = 'access-control-allow-origin'

/** Compiles settings; `requestId` is the name of the field of the request id. */
export function createCors({ origins, credentials, maxAgeMs }: CorsSettings, requestId: string): Cors {
  const expose = ['Access-Control-Expose-Headers', [...HIDDEN_FIELDS, requestId].join(', ')]
  const credentialFields = credentials ? ['Access-Control-Allow-Credentials', 'true'] : []
  const fieldsOf = (origin: string): CorsFields => {
    const allow = ['Access-Control-Allow-Origin', origin, ...credentialFields]
    return { allow, expose, text: textOf([...allow, ...expose, 'Vary', 'Origin']) }
  }
  const refused: CorsFields = { allow: [], expose: [], text: textOf(['Vary', 'Origin']) }
  const allowed = new Map(origins.map((origin) => [origin, fieldsOf(origin)]))
  const any = allowed.get('*')
  return {
    maxAgeSecs: Math.floor(maxAgeMs / 1000),
    fieldsFor: (origin) => (origin === undefined ? refused : (any ?? allowed.get(origin) ?? refused)),
  }
}

function textOf(fields: readonly string[]): string {
  let text = ''
  for (let i = 0; i < fields.length; i += 2) text += `\r\n${fields[i]}: ${fields[i + 1]}`
  return text
}

/**
 * Returns the CORS fields of a response of the gateway, as text for `appendFields`. A configured
 * refusal that has `Access-Control-Allow-Origin` itself gets only `Vary`.
 */
export function ownCorsFields(fields: CorsFields, checked: Reply['checked']): string {
  const allowsItself = Object.keys(checked).some((name) => name.toLowerCase() === ALLOW_ORIGIN)
  return allowsItself ? '\r\nVary: Origin' : fields.text
}

/** Returns the settings for the response to a request; `others` are those of a path without a route. */
export function corsOf<C>(
  found: Match<{ readonly cors: C | undefined } & Route>,
  others: C | undefined,
): C | undefined {
  if (found === undefined) return others
  if ('route' in found) return found.route.cors
  return found.nearest === undefined ? others : found.nearest.cors
}

/**
 * Returns the methods that a preflight allows: those whose route has the settings `cors`, so that
 * other methods are not sent without a preflight of their own. A path without a route allows the
 * usual ones: its 404 can be read.
 */
export function corsMethods<R extends { readonly cors: Cors | undefined }>(
  cors: Cors,
  matchOf: (method: string) => Match<R>,
): readonly string[] {
  return ROUTABLE_METHODS.filter((method) => {
    const found = matchOf(method)
    return found === undefined ? METHODS.has(method) : 'route' in found && found.route.cors === cors
  })
}

/** Maximum length of the names of fields that a preflight may ask for, in characters. */
const MAX_NAMES = 2048
/** Names of fields, separated by commas (RFC 9110 section 5.6). */
const NAMES = /^[\w!#$%&'*+.^`|~, \t-]+$/

/**
 * Returns the response to a preflight (Fetch Standard section 4.8), without the fields that every
 * response of the route has. One for an origin that is not allowed permits nothing. Fields are
 * allowed as requested: limits, tokens and upstreams decide about them, not browsers.
 */
export function preflightReply(
  { maxAgeSecs }: Cors,
  isAllowed: boolean,
  methods: readonly string[],
  { 'access-control-request-headers': names = '' }: IncomingHttpHeaders,
): Reply {
  const fields = ['Vary', 'Access-Control-Request-Method, Access-Control-Request-Headers']
  if (isAllowed) {
    fields.push('Access-Control-Allow-Methods', methods.join(', '))
    if (names.length <= MAX_NAMES && NAMES.test(names)) fields.push('Access-Control-Allow-Headers', names)
    fields.push('Access-Control-Max-Age', String(maxAgeSecs))
  }
  return { status: 204, checked: {}, headers: textOf(fields), body: '' }
}
