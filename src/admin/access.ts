import { hash, timingSafeEqual } from 'node:crypto'
import { type IncomingHttpHeaders, STATUS_CODES } from 'node:http'
import { isLoopback } from '../loopback.ts'

/** Who may read and reset limits: who knows the token or, if none is configured, who is on this machine. */
export interface Access {
  readonly token: string | undefined
  /** True if the listener is reached from this machine alone. */
  readonly onLoopback: boolean
}

/** A response of the operators' listener; an object as its body is JSON. */
export interface AdminResponse {
  readonly status: number
  readonly body: string | object
  readonly headers?: Readonly<Record<string, string>>
}

/** Returns an answer as of RFC 9457. */
export function problem(
  status: number,
  detail: string,
  headers: AdminResponse['headers'] = {},
): AdminResponse {
  const body = { type: 'about:blank', title: STATUS_CODES[status], status, detail }
  return { status, body, headers: { 'Content-Type': 'application/problem+json', ...headers } }
}

/**
 * Returns the refusal of a request for limits or for what the console shows; undefined if it is allowed. Without a token only
 * programs of this machine may ask, and the console: another page in a browser there names another host, if that name was bound
 * to this address (DNS rebinding), or sends an origin that is not this one.
 */
export function deny(
  { authorization = '', host = '', origin }: IncomingHttpHeaders,
  { token, onLoopback }: Access,
): AdminResponse | undefined {
  if (token !== undefined) {
    // RFC 6750 sections 2.1 and 3.
    const [, given] = /^bearer +(\S+) *$/i.exec(authorization) ?? []
    if (given === undefined) return unauthorized('Send admin.token as "Authorization: Bearer …".')
    if (timingSafeEqual(digest(given), digest(token))) return undefined
    return unauthorized('This is not the token of admin.token.', ', error="invalid_token"')
  }
  if (!onLoopback)
    return problem(403, 'Limits and the console need admin.token, unless admin.host is 127.0.0.1.')
  const name = host.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1')
  if (!isLoopback(name)) {
    return problem(403, 'Limits are shown at localhost, 127.0.0.1 and [::1] alone, or with admin.token.')
  }
  if (origin === undefined || origin === `http://${host.toLowerCase()}`) return undefined
  return problem(403, 'Limits are not shown to other web pages than the console.')
}

const unauthorized = (detail: string, error = ''): AdminResponse =>
  problem(401, detail, { 'WWW-Authenticate': `Bearer realm="sluice"${error}` })

/** Of the same length whatever the text, so that comparing takes the same time. */
const digest = (text: string): Buffer => hash('sha256', text, 'buffer')
