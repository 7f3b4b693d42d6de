import { type IncomingHttpHeaders, type ServerResponse, STATUS_CODES } from 'node:http'
import Negotiator from 'negotiator'
import type { Refusal } from '../errors.ts'
import { appendFields, endWithBody } from '../runtime/node-http.ts'
import { isGuarded, type Route } from './router.ts'
import { parseHost } from './target.ts'

export interface Reply {
  readonly status: number
  /** The fields that Node.js must know or check, as a flat list of names and values; and those that are well formed, as text for `addFields`. */
  readonly checked: readonly string[]
  readonly headers: string
  readonly body: string
}

/** The Data API's errors (RFC 9457), those of the OAuth endpoints (RFC 6749 section 5.2), or a page for people. */
export type ErrorFormat = 'problem' | 'oauth' | 'page'

/** Returns the error format of a route: that which its upstream's clients read. */
export function errorFormatOf({ upstream, authenticate }: Route): ErrorFormat {
  return upstream === 'identity' || isGuarded({ authenticate }) ? 'oauth' : 'problem'
}

/** Returns the error format of a `Host` value while no route is known: OAuth's where all routes of the host have it. */
export function hostErrorFormats(routes: readonly Route[]): (host: string | undefined) => ErrorFormat {
  const formats = new Map<string, ErrorFormat>()
  for (const route of routes)
    if (route.host !== undefined && formats.get(route.host) !== 'problem')
      formats.set(route.host, errorFormatOf(route))
  return (host = '') => formats.get(parseHost(host)?.host ?? '') ?? 'problem'
}

/** Registered problem types (RFC 9457 section 4.2, draft-ietf-httpapi-ratelimit-headers-10). */
const REGISTRY = 'https://iana.org/assignments/http-problem-types#'
const QUOTA_EXCEEDED = `${REGISTRY}quota-exceeded`

function problemType({ status, violatedPolicies }: Refusal): string {
  if (status === 429)
    return violatedPolicies === undefined ? `${REGISTRY}abnormal-usage-detected` : QUOTA_EXCEEDED
  return status === 503 ? `${REGISTRY}temporary-reduced-capacity` : 'about:blank'
}

/** Longest `Accept` that is read. */
const MAX_ACCEPT = 1000
/** What stands before the request id. */
const headersOf = (contentType: string): string =>
  `\r\nCache-Control: no-store\r\nContent-Type: ${contentType}\r\nX-Request-Id: `
const JSON_HEADERS = headersOf('application/json')
const HEADERS: Readonly<Record<ErrorFormat, string>> = {
  problem: headersOf('application/problem+json'),
  oauth: JSON_HEADERS,
  page: `\r\nContent-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer${headersOf('text/html; charset=utf-8')}`,
}

/** Returns the reply to a refused request; `rateLimit` are the fields of the decision, where one was made. */
export function refusalReply(
  refusal: Refusal,
  format: ErrorFormat,
  requestId: string,
  rateLimit = '',
): Reply {
  const { status } = refusal
  const checked: string[] = []
  for (const name in refusal.headers) {
    const value = refusal.headers[name]!
    for (const one of typeof value === 'string' ? [value] : value) checked.push(name, one)
  }
  const headers = rateLimit + HEADERS[format] + requestId
  return { status, checked, headers, body: BODIES[format](refusal, requestId) }
}

const BODIES: Readonly<Record<ErrorFormat, (refusal: Refusal, requestId: string) => string>> = {
  problem,
  oauth: ({ status, oauthError = oauthCode(status), message }) =>
    JSON.stringify({ error: oauthError, error_description: message }),
  page,
}

/** True if the `Accept` of a request prefers HTML to JSON (RFC 9110 section 12.5.1), as that of a browser does. */
export function prefersPage({ accept = '' }: IncomingHttpHeaders): boolean {
  const headers = { accept: accept.slice(0, MAX_ACCEPT) }
  return new Negotiator({ headers }).mediaType(['application/json', 'text/html']) === 'text/html'
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}
const escapedHtml = (text: string): string => text.replaceAll(/[&<>"']/g, (char) => ENTITIES[char]!)

/** Written for somebody whose browser another application has sent here. */
function page({ status, message }: Refusal, requestId: string): string {
  const title = escapedHtml(`${status} ${STATUS_CODES[status] ?? 'Error'}`)
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<h1>${title}</h1>
<p>The application that sent you here made a request that cannot be served: ${escapedHtml(message)}</p>
<p>Go back to the application and try again. If this page comes again, tell its support this number: ${escapedHtml(requestId)}</p>
</html>
`
}

/** Written by hand, since 429s are many, and only the message and the policies may need escapes: ids are well formed. */
function problem(refusal: Refusal, requestId: string): string {
  const { status, code, message, violatedPolicies, retryAfterSecs } = refusal
  const title = STATUS_CODES[status] ?? 'Error'
  let body = `{"type":"${problemType(refusal)}","title":"${title}","status":${status},"detail":${JSON.stringify(message)}`
  if (violatedPolicies !== undefined) body += `,"violated-policies":${JSON.stringify(violatedPolicies)}`
  body += `,"code":"${code}","message":"${title}"`
  if (retryAfterSecs !== undefined) body += `,"retryAfterSecs":${retryAfterSecs}`
  return `${body},"correlationId":"${requestId}"}`
}

export function jsonReply(body: object, requestId: string, rateLimit = ''): Reply {
  return {
    status: 200,
    checked: [],
    headers: rateLimit + JSON_HEADERS + requestId,
    body: JSON.stringify(body),
  }
}

/** The RFC 6749 code nearest to a status; `server_error` and `temporarily_unavailable` are those of section 4.1.2.1. */
function oauthCode(status: number): string {
  if (status === 429 || status === 503 || status === 504) return 'temporarily_unavailable'
  return status >= 500 ? 'server_error' : 'invalid_request'
}

/** Writes a reply. A request whose body is still coming closes its socket, so that the rest is never taken for the next request. Returns the bytes of the body. */
export function writeReply(response: ServerResponse, reply: Reply): number {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return 0
  }
  const { status, checked, headers, body } = reply
  const bytes = Buffer.byteLength(body)
  const framing = [...checked, 'Content-Length', String(bytes)]
  const { req: request } = response
  const bodiless = request.method === 'HEAD'
  if (!request.complete) {
    if (!checked.includes('Connection')) framing.push('Connection', 'close')
    request.resume()
  }
  response.writeHead(status, framing)
  appendFields(response, headers)
  if (bodiless) response.end()
  else if (bytes === body.length) endWithBody(response, body)
  else response.end(body)
  return bodiless ? 0 : bytes
}
