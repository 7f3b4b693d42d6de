import { type IncomingHttpHeaders, type ServerResponse, STATUS_CODES } from 'node:http'
import Negotiator from 'negotiator'
import type { Refusal } from '../errors.ts'
import { appendFields, endWithBody } from '../runtime/node-http.ts'
import { parseHost } from './target.ts'

export interface Reply {
  readonly status: number
  /** Fields for `writeHead`, which Node.js interprets or validates. */
  readonly checked: Refusal['headers']
  /** Well-formed fields, as text for `appendFields`. */
  readonly headers: string
  readonly body: string
}

/** The Data API's errors (RFC 9457), those of the OAuth endpoints (RFC 6749 section 5.2), or an HTML page. */
export type ErrorFormat = 'problem' | 'oauth' | 'page'

/** Returns the error format of a `Host` value without a route: OAuth's if all routes of the host have it. */
export function hostErrorFormats(routes: readonly { host?: string | undefined; errorFormat: ErrorFormat }[]) {
  const formats = new Map<string, ErrorFormat>()
  for (const { host, errorFormat } of routes)
    if (host !== undefined && formats.get(host) !== 'problem') formats.set(host, errorFormat)
  return (host = ''): ErrorFormat => formats.get(parseHost(host)?.host ?? '') ?? 'problem'
}

/** Registered problem types (RFC 9457 section 4.2, draft-ietf-httpapi-ratelimit-headers-10). */
const REGISTRY = 'https://iana.org/assignments/http-problem-types#'

/**
 * Returns the type of a problem: the entry of its code at the URL of `errors.documentation`, else
 * the registered one.
 */
function problemType({ status, code, violatedPolicies }: Refusal, docs?: string) {
  if (docs !== undefined) return `${docs}#${code.toLowerCase()}`
  if (status === 503) return `${REGISTRY}temporary-reduced-capacity`
  if (status !== 429) return 'about:blank'
  return REGISTRY + (violatedPolicies === undefined ? 'abnormal-usage-detected' : 'quota-exceeded')
}

const NO_STORE = '\r\nCache-Control: no-store'
const headersOf = (contentType: string | undefined): string =>
  contentType === undefined ? NO_STORE : `${NO_STORE}\r\nContent-Type: ${contentType}`
const CSP = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
const OTHER_PAGE_FIELDS = '\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer'
const JSON_HEADERS = headersOf('application/json')
const TEXT_HEADERS = headersOf('text/plain; charset=utf-8')
const PAGE_FIELDS = `\r\nContent-Security-Policy: ${CSP}${OTHER_PAGE_FIELDS}`
const FORMATS = {
  problem: { headers: headersOf('application/problem+json'), bodyOf: problemBody },
  oauth: { headers: JSON_HEADERS, bodyOf: oauthBody },
  page: { headers: PAGE_FIELDS + headersOf('text/html; charset=utf-8'), bodyOf: pageBody },
} as const

/** Returns the reply to a refused request. */
export function refusalReply(refusal: Refusal, format: ErrorFormat, requestId: string, docs?: string): Reply {
  const { status, headers: given, reply } = refusal
  const checked = reply === undefined ? given : { ...given, ...reply.headers }
  const headers = reply?.body === undefined ? FORMATS[format].headers : headersOf(reply.contentType)
  const body = reply?.body ?? FORMATS[format].bodyOf(refusal, requestId, docs)
  return { status, checked, headers, body }
}

function problemBody(refusal: Refusal, requestId: string, docs?: string): string {
  if (refusal.problem === undefined || refusal.problem.docs !== docs)
    refusal.problem = { docs, start: problemStart(refusal, docs) }
  return `${refusal.problem.start}"${requestId}"}`
}

/**
 * Returns a problem up to its last member, the request id. Only the message may need escapes. Joined, so
 * that V8 has one text, and does not collect its parts in each reply.
 */
function problemStart(refusal: Refusal, docs: string | undefined): string {
  const { status, code, message, violatedPolicies, retryAfterSecs } = refusal
  const title = STATUS_CODES[status] ?? 'Error'
  const members = [
    `{"type":"${problemType(refusal, docs)}"`,
    `"title":"${title}"`,
    `"status":${status}`,
    `"detail":${JSON.stringify(message)}`,
  ]
  if (violatedPolicies) members.push(`"violated-policies":["${violatedPolicies.join('","')}"]`)
  members.push(`"code":"${code}"`, `"message":"${title}"`)
  if (retryAfterSecs !== undefined) members.push(`"retryAfterSecs":${retryAfterSecs}`)
  return [...members, '"correlationId":'].join(',')
}

/** RFC 6749 section 5.2 allows no quotes and backslashes in a description. */
function oauthBody({ status, oauthError, message }: Refusal): string {
  const description = message.replaceAll(/["\\]/g, "'")
  return JSON.stringify({ error: oauthError ?? oauthCode(status), error_description: description })
}

/**
 * Returns the RFC 6749 code for a status; `server_error` and `temporarily_unavailable` are codes of
 * section 4.1.2.1.
 */
function oauthCode(status: number): string {
  if (status === 429 || status === 503 || status === 504) return 'temporarily_unavailable'
  return status >= 500 ? 'server_error' : 'invalid_request'
}

const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)

/** Returns a page for a user whose browser was redirected here by another application. */
function pageBody({ status, message }: Refusal, requestId: string): string {
  const title = escapeHtml(`${status} ${STATUS_CODES[status] ?? 'Error'}`)
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<h1>${title}</h1>
<p>The request of the application that sent you here was refused: ${escapeHtml(message)}</p>
<p>Go back and try again. If that fails, give its support this number: ${escapeHtml(requestId)}</p>
</html>
`
}

/** True if the `Accept` of a request prefers HTML to JSON (RFC 9110 section 12.5.1), as a browser's does. */
export function prefersPage({ accept = '' }: IncomingHttpHeaders): boolean {
  const headers = { accept: accept.slice(0, 1000) }
  return new Negotiator({ headers }).mediaType(['application/json', 'text/html']) === 'text/html'
}

/** Returns a reply of one line of text. */
export function textReply(status: number, line: string): Reply {
  return { status, checked: {}, headers: TEXT_HEADERS, body: `${line}\n` }
}

export function jsonReply(body: object): Reply {
  return { status: 200, checked: {}, headers: JSON_HEADERS, body: JSON.stringify(body) }
}

/**
 * Writes a reply with more `fields`, as text for `appendFields`, and closes the socket if the request
 * is incomplete, so that the rest is not parsed as the next one. Returns the bytes of the body.
 */
export function writeReply(response: ServerResponse, reply: Reply, fields: string): number {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return 0
  }
  const { status, checked, headers, body } = reply
  const bytes = Buffer.byteLength(body)
  const { req: request } = response
  if (!request.complete) {
    response.shouldKeepAlive = false
    request.resume()
  }
  // RFC 9110 section 8.6: no Content-Length in a 204. Node.js 20 takes 1 us to add a field to a copy.
  response.writeHead(status, status === 204 ? checked : { 'Content-Length': bytes, ...checked })
  appendFields(response, headers + fields)
  const isHead = request.method === 'HEAD'
  // Node.js sends no body in a response to HEAD.
  if (isHead || bytes !== body.length) response.end(body)
  else endWithBody(response, body)
  return isHead ? 0 : bytes
}
