import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'

/** Who may read and reset limits: whoever knows the token, or, where none is configured, whoever is on this machine. */
export interface Access {
  readonly token: string | undefined
  /** Is the listener reached from this machine alone? */
  readonly onLoopback: boolean
}

/** Why a request may not read or reset limits. */
export interface Denial {
  readonly status: 401 | 403
  readonly detail: string
  readonly headers?: Readonly<Record<string, string>>
}

const CHALLENGE = 'Bearer realm="sluice"'

/**
 * Lets a request pass, or says why not. Without a token only programs of this machine may ask: a page in a browser there
 * names another host where its name was bound to this address, or tells its own origin.
 */
export function deny(
  { authorization, host, origin }: IncomingHttpHeaders,
  access: Access,
): Denial | undefined {
  if (access.token !== undefined) return denyWithout(access.token, authorization)
  if (!access.onLoopback) {
    return {
      status: 403,
      detail: 'Here limits are told to nobody: set admin.token, or let admin.host be 127.0.0.1.',
    }
  }
  if (!isLoopback(hostname(host ?? ''))) {
    return {
      status: 403,
      detail: 'Limits are told at localhost, 127.0.0.1 and [::1] alone, or with admin.token.',
    }
  }
  if (origin !== undefined) return { status: 403, detail: 'Limits are not told to web pages.' }
  return undefined
}

/** RFC 6750 sections 2.1 and 3. */
function denyWithout(token: string, authorization = ''): Denial | undefined {
  const [, given] = /^bearer +(\S+) *$/i.exec(authorization) ?? []
  if (given === undefined) {
    return {
      status: 401,
      detail: 'Send admin.token as "Authorization: Bearer …".',
      headers: { 'WWW-Authenticate': CHALLENGE },
    }
  }
  if (timingSafeEqual(digest(given), digest(token))) return undefined
  const headers = { 'WWW-Authenticate': `${CHALLENGE}, error="invalid_token"` }
  return { status: 401, detail: 'This is not the token of admin.token.', headers }
}

/** Equally long whatever the text, so that comparing takes the same time. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

/** The host without its port and brackets. */
function hostname(host: string): string {
  return host.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1')
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
