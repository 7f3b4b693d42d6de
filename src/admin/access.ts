import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'

/** Who may read and reset limits: who knows the token or, if none is configured, who is on this machine. */
export interface Access {
  readonly token: string | undefined
  /** True if the listener is reached from this machine alone. */
  readonly onLoopback: boolean
}

/** Why a request may not read or reset limits. */
export interface Denial {
  readonly status: 401 | 403
  readonly detail: string
  readonly headers?: Readonly<Record<string, string>>
}

/**
 * Returns why a request is denied; undefined if it is not. Without a token only programs of this machine may ask: a page in a
 * browser there names another host, if that name was bound to this address, or sends its own origin.
 */
export function deny(
  { authorization = '', host = '', origin }: IncomingHttpHeaders,
  { token, onLoopback }: Access,
): Denial | undefined {
  if (token !== undefined) {
    // RFC 6750 sections 2.1 and 3.
    const [, given] = /^bearer +(\S+) *$/i.exec(authorization) ?? []
    if (given === undefined) return unauthorized('Send admin.token as "Authorization: Bearer …".')
    if (timingSafeEqual(digest(given), digest(token))) return undefined
    return unauthorized('This is not the token of admin.token.', ', error="invalid_token"')
  }
  if (!onLoopback) return forbidden('Limits need admin.token, unless admin.host is 127.0.0.1.')
  const name = host.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1')
  if (!isLoopback(name)) {
    return forbidden('Limits are shown at localhost, 127.0.0.1 and [::1] alone, or with admin.token.')
  }
  return origin === undefined ? undefined : forbidden('Limits are not shown to web pages.')
}

const forbidden = (detail: string): Denial => ({ status: 403, detail })

function unauthorized(detail: string, error = ''): Denial {
  return { status: 401, detail, headers: { 'WWW-Authenticate': `Bearer realm="sluice"${error}` } }
}

/** Of the same length whatever the text, so that comparing takes the same time. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

/** True if this host, an address without brackets or a name, is reached from this machine alone. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '')
  switch (isIP(plain)) {
    case 4:
      return plain.startsWith('127.')
    case 6:
      return /^(?:0{0,4}:){2,7}0{0,3}1$/.test(plain)
    default:
      return plain === 'localhost'
  }
}
