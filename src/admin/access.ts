import { hash, timingSafeEqual } from 'node:crypto'
import { type IncomingHttpHeaders, STATUS_CODES } from 'node:http'
import { isIP } from 'node:net'
import { isLoopback } from '../runtime/address.ts'

/** Access to limits and the console: with the token or, if none is configured, from this machine. */
export interface AdminAccess {
  readonly token: string | undefined
  readonly onLoopback: boolean
  /** Names by which operators reach the listener, in lower case, besides its addresses and `localhost`. */
  readonly hosts: readonly string[]
}

/** A response of the operators' listener; an object as its body is JSON. */
export interface AdminResponse {
  readonly status: number
  readonly body: string | object
  readonly headers?: Readonly<Record<string, string>>
}

/** Returns a problem response (RFC 9457). */
export function problem(status: number, detail: string, headers?: AdminResponse['headers']) {
  const body = { type: 'about:blank', title: STATUS_CODES[status], status, detail }
  return { status, body, headers: { 'Content-Type': 'application/problem+json', ...headers } }
}

/**
 * Refuses a request for limits or the console's data. The Host of a page whose name is rebound to
 * this address (DNS rebinding) is that name, also if the page knows the token. Without a token,
 * allows only programs of this machine and the console.
 */
export function deny(headers: IncomingHttpHeaders, access: AdminAccess): AdminResponse | undefined {
  const { authorization = '', host = '', origin } = headers
  const { token, onLoopback, hosts } = access
  const site = host.toLowerCase()
  const name = site.replace(/:\d*$/, '').replace(/^\[|\]$/g, '')
  if (token !== undefined) {
    if (isIP(name) === 0 && name !== 'localhost' && !hosts.includes(name))
      return problem(403, 'Use an IP address or localhost, or add the host to admin.hosts.')
    // RFC 6750 sections 2.1 and 3.
    const [, sent] = /^bearer +(\S+) *$/i.exec(authorization) ?? []
    if (sent === undefined) return unauthorized('Send admin.token as "Authorization: Bearer …".')
    if (timingSafeEqual(digest(sent), digest(token))) return undefined
    return unauthorized('Wrong token; send the configured admin.token.', ', error="invalid_token"')
  }
  if (!onLoopback)
    return problem(403, 'Limits and the console need admin.token, unless admin.host is 127.0.0.1.')
  if (!isLoopback(name))
    return problem(403, 'Without admin.token, use localhost, 127.0.0.1 or [::1] as the host.')
  if (origin === undefined || origin === `http://${site}`) return undefined
  return problem(403, 'Without admin.token, only the console may ask for limits from a browser.')
}

const unauthorized = (detail: string, error = ''): AdminResponse =>
  problem(401, detail, { 'WWW-Authenticate': `Bearer realm="sluice"${error}` })

/** Returns a digest of fixed length, for comparison in constant time. */
const digest = (text: string): Buffer => hash('sha256', text, 'buffer')
