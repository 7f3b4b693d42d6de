import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Refusal } from '../errors.ts'
import { type Decision, exceeded } from '../limit/decision.ts'
import { lingerOnClose } from './graceful-close.ts'

/** One of the gateway's own answers, ready to be written. */
export interface Reply {
  readonly status: number
  /** A flat list of names and values. */
  readonly headers: readonly string[]
  readonly body: string
}

/** Whose error format a route speaks: the Data API's, or the OAuth endpoints' (RFC 6749 section 5.2). */
export type Dialect = 'problem' | 'oauth'

const QUOTA_EXCEEDED = 'https://iana.org/assignments/http-problem-types#quota-exceeded'

/** The answer to a request that the limits refuse; `decision` is a refusal, `rateLimit` its fields. */
export function refusedReply(decision: Decision, rateLimit: readonly string[], requestId: string): Reply {
  const { detail, violatedPolicies, retryAfterSecs } = exceeded(decision)
  return {
    status: 429,
    headers: [...rateLimit, ...OWN_HEADERS, 'Content-Type', 'application/problem+json'],
    body: JSON.stringify({
      type: QUOTA_EXCEEDED,
      title: 'Too Many Requests',
      status: 429,
      detail,
      'violated-policies': violatedPolicies,
      code: 'TooManyRequests',
      message: 'Too Many Requests',
      retryAfterSecs,
      correlationId: requestId,
    }),
  }
}

const OWN_HEADERS = ['Cache-Control', 'no-store']

/** The answer to a request that failed; `rateLimit` are the fields of the decision, where one was made. */
export function errorReply(
  error: Refusal,
  dialect: Dialect,
  requestId: string,
  rateLimit: readonly string[] = [],
): Reply {
  const headers = [...rateLimit]
  for (const [name, value] of Object.entries(error.headers)) {
    for (const one of typeof value === 'string' ? [value] : value) headers.push(name, one)
  }
  headers.push(...OWN_HEADERS, 'Content-Type')
  if (dialect === 'oauth') {
    headers.push('application/json')
    const body = JSON.stringify({
      error: error.oauthError ?? oauthCode(error.status),
      error_description: error.message,
    })
    return { status: error.status, headers, body }
  }
  headers.push('application/problem+json')
  const title = STATUS_CODES[error.status] ?? 'Error'
  const body = JSON.stringify({
    type: error.status === 429 ? QUOTA_EXCEEDED : 'about:blank',
    title,
    status: error.status,
    detail: error.message,
    code: error.code,
    message: title,
    ...(error.status === 429 && { retryAfterSecs: Number(error.headers['Retry-After']) }),
    correlationId: requestId,
  })
  return { status: error.status, headers, body }
}

/** The answer of a route to which the gateway itself responds. */
export function jsonReply(body: object): Reply {
  return {
    status: 200,
    headers: [...OWN_HEADERS, 'Content-Type', 'application/json'],
    body: JSON.stringify(body),
  }
}

/** The RFC 6749 code nearest to a status; `server_error` and `temporarily_unavailable` are those of section 4.1.2.1. */
function oauthCode(status: number): string {
  if (status === 503 || status === 504) return 'temporarily_unavailable'
  return status >= 500 ? 'server_error' : 'invalid_request'
}

/**
 * Writes a reply. A request whose body is still coming ends its socket, so that the rest is never taken for the next
 * request; what is under way is read and dropped for a moment, lest a reset overtake the answer.
 */
export function speak(response: ServerResponse, reply: Reply): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const headers = [...reply.headers, 'Content-Length', String(Buffer.byteLength(reply.body))]
  const { req: request } = response
  if (!request.complete) {
    if (!headers.includes('Connection')) headers.push('Connection', 'close')
    if (response.socket) lingerOnClose(response.socket)
    request.resume()
  }
  response.writeHead(reply.status, headers)
  response.end(request.method === 'HEAD' ? undefined : reply.body)
}
