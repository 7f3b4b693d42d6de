import type { IncomingHttpHeaders } from 'node:http'

/** The URL that callers use, where TLS, the port or a path prefix ends before the gateway. */
export interface PublicUrl {
  readonly scheme: 'http' | 'https'
  /** The host, with its port if that is not the scheme's, as in a Host field. */
  readonly host: string
  /** The host in lower case, without the port. */
  readonly hostname: string
  readonly port: string
  /** The path that a proxy removes before each target, without a slash at its end; empty for none. */
  readonly prefix: string
}

const DEFAULT_PORTS = { http: '80', https: '443' }

/** Parses an http or https URL without query and fragment. */
export function parsePublicUrl(url: string): PublicUrl {
  const { protocol, host, hostname, port, pathname } = new URL(url)
  const scheme = protocol === 'https:' ? 'https' : 'http'
  return { scheme, host, hostname, port: port || DEFAULT_PORTS[scheme], prefix: pathname.replace(/\/$/, '') }
}

/** Returns the port of a Host field, or of the scheme if it has none. */
export function publicPort(host: string, scheme: string): string {
  const [, port = ''] = /:(\d+)$/.exec(host) ?? []
  return port || DEFAULT_PORTS[scheme === 'https' ? 'https' : 'http']
}

/** Returns the first value of a list: of the proxy next to the caller. */
export const firstOf = (list: string | undefined): string | undefined => list?.split(',', 1)[0]!.trim()

/** Plain HTTP as a value of X-Forwarded-Proto: Traefik reports `ws` for a WebSocket without TLS. */
const PLAIN_VALUE = /(?:^|,)\s*"?(?:http|ws)"?\s*(?=,|$)/i
/** The same as a parameter of Forwarded (RFC 7239 section 5.4), also in quotes. */
const PLAIN_PARAMETER = /(?:^|[,;])\s*proto\s*=\s*"?(?:http|ws)"?\s*(?=[,;]|$)/i

/**
 * Returns true if proxies report plain HTTP in `X-Forwarded-Proto` or `Forwarded`, in any value: a
 * proxy may append its own to one that the caller wrote.
 */
export function reportsPlainHttp(headers: IncomingHttpHeaders): boolean {
  // Node.js joins repeated fields of these names.
  const proto = headers['x-forwarded-proto'] as string | undefined
  if (proto !== undefined && proto !== 'https' && PLAIN_VALUE.test(proto)) return true
  return headers.forwarded !== undefined && PLAIN_PARAMETER.test(headers.forwarded)
}
