import type { CorsFields } from '../downstream/cors.ts'
import { isRateLimitField } from '../downstream/own-fields.ts'
import { HOP_BY_HOP, namedByConnection, nameSet } from '../downstream/request-fields.ts'
import { memoize } from '../runtime/memoize.ts'
import { challengesConnection } from './bound-schemes.ts'
import { addCorsFields } from './cors-fields.ts'

/** Response fields that may name how the server has authenticated the caller, or wants to. */
const CHALLENGES = nameSet('authentication-info www-authenticate')
/** Response fields of servers that authenticate connections (`Proxy-Support`: RFC 4559 section 6). */
const SESSIONS = nameSet('persistent-auth proxy-support')
const READ_FIELDS = ['content-length', 'date', 'keep-alive', 'transfer-encoding'] as const

/** `keep` is forwarded, `drop` is not; the others are read. */
type ResponseFieldKind =
  | 'keep'
  | 'drop'
  | 'request-id'
  | 'rate-limit'
  | 'challenge'
  | 'session'
  | 'transport-security'
  | (typeof READ_FIELDS)[number]

/** The fields of responses, and the one of the request id. */
export interface ResponseFields {
  /** The name of the field of the request id as it is written, and in lower case. */
  readonly requestId: string
  readonly idField: string
  /** `Strict-Transport-Security`, as text for `appendFields`, for callers over TLS; else empty. */
  readonly transportSecurity: string
  /** Returns the kind of a field, whose name is in any case. */
  kindOf(name: string): ResponseFieldKind
}

/** A year, in seconds (RFC 6797). */
const TRANSPORT_SECURITY = '\r\nStrict-Transport-Security: max-age=31536000'

/**
 * Creates the kinds of response fields; `requestId` is the name of the field of the request id,
 * `isSecure` is true if callers connect by TLS.
 */
export function createResponseFields(requestId: string, isSecure = false): ResponseFields {
  const idField = requestId.toLowerCase()
  function kindOf(name: string): ResponseFieldKind {
    const lower = name.toLowerCase()
    if (lower === idField) return 'request-id'
    if (isRateLimitField(lower)) return 'rate-limit'
    if (CHALLENGES.has(lower)) return 'challenge'
    if (SESSIONS.has(lower)) return 'session'
    if (lower === 'strict-transport-security') return 'transport-security'
    return READ_FIELDS.find((field) => field === lower) ?? (HOP_BY_HOP.has(lower) ? 'drop' : 'keep')
  }
  const transportSecurity = isSecure ? TRANSPORT_SECURITY : ''
  return { requestId, idField, transportSecurity, kindOf: memoize(kindOf, 1000, 64) }
}

/** The fields that the gateway adds to a response. */
export interface AddedFields {
  /** The gateway's rate-limit fields, on a limited route. */
  readonly rateLimit: string | undefined
  /** The request id of a response that has none. */
  readonly requestId: string
  readonly responseFields: ResponseFields
  /** The fields of `cors` for the origin of the request, on a route that has it. */
  readonly cors?: CorsFields | undefined
}

/**
 * Reads the head of a response. `headers` are its fields in the order received, as text for
 * `appendFields`; `framing` are those that Node.js must parse, as a flat list. `rateLimit` replaces
 * the upstream's rate-limit fields, except those of a 429 of its own: the gateway's would report
 * calls as remaining. The request id, and `Strict-Transport-Security` over TLS, are added if the upstream sent none. `keepAliveMs` is the
 * announced lifetime of an idle socket, less the time for the next request to arrive.
 * `isConnectionBound` is true if the server authenticates the connection (NTLM, Negotiate).
 */
export function readResponseHead(received: readonly string[], status: number, added: AddedFields) {
  const { requestId, responseFields, cors } = added
  const rawHeaders = cors === undefined ? received : addCorsFields(received, cors)
  const { kindOf } = responseFields
  const hasOwnLimit =
    status === 429 && rawHeaders.some((name, i) => i % 2 === 0 && kindOf(name) === 'rate-limit')
  const rateLimit = hasOwnLimit ? undefined : added.rateLimit
  let connection = ''
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]!.length === 10 && rawHeaders[i]!.toLowerCase() === 'connection')
      connection += `,${rawHeaders[i + 1]!}`
  const named = namedByConnection(connection.slice(1))
  let headers = ''
  const framing: string[] = []
  let contentLength: number | undefined
  let transferEncoding: string | undefined
  let keepAliveMs: number | undefined
  let hasId = false
  let isConnectionBound = false
  let { transportSecurity } = responseFields
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const value = rawHeaders[i + 1]!
    const field = kindOf(name)
    const isOfAuthentication = field === 'challenge' || field === 'session'
    if (isOfAuthentication) isConnectionBound ||= field === 'session' || challengesConnection(value)
    if (field === 'keep' || field === 'rate-limit' || field === 'date' || isOfAuthentication) {
      if (field === 'rate-limit' && rateLimit !== undefined) continue
      if (named?.has(name.toLowerCase()) === true) continue
      if (field === 'date') framing.push(name, value)
      else headers += `\r\n${name}: ${value}`
    } else if (field === 'content-length') {
      contentLength = Number(value)
      // RFC 9110 section 8.6: no Content-Length in a 204.
      if (status !== 204) framing.push(name, value)
    } else if (field === 'request-id') {
      // The first that is not empty.
      if (hasId || value === '') continue
      hasId = true
      headers += `\r\n${name}: ${value}`
    } else if (field === 'transport-security') {
      transportSecurity = ''
      headers += `\r\n${name}: ${value}`
    } else if (field === 'keep-alive') keepAliveMs = announcedBy(value)
    else if (field === 'transfer-encoding') {
      transferEncoding = transferEncoding === undefined ? value : `${transferEncoding}, ${value}`
    }
  }
  headers += transportSecurity
  if (rateLimit !== undefined) headers += rateLimit
  if (!hasId) headers += `\r\n${responseFields.requestId}: ${requestId}`
  return { headers, framing, contentLength, transferEncoding, keepAliveMs, isConnectionBound }
}

export type ResponseHead = ReturnType<typeof readResponseHead>

/** Parses `Keep-Alive: timeout=5` (RFC 2068 section 19.7.1.1), which is in seconds. */
function announcedBy(keepAlive: string): number | undefined {
  const seconds = /timeout=(\d+)/.exec(keepAlive)?.[1]
  if (seconds === undefined) return undefined
  const ms = Number(seconds) * 1000
  return Math.max(ms - 1000, ms / 2)
}
