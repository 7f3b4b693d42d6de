import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { decodeSegment } from './target.ts'

/**
 * Returns the certificate of a TLS client in DER: if a trusted proxy sends the request, from its
 * `field`, in lower case, else from the socket. Undefined if the field occurs twice: the caller may
 * have sent one.
 */
export function clientCertificate(
  { socket, headersDistinct }: IncomingMessage,
  trusted: boolean,
  field: string,
) {
  if (trusted) {
    const [value, second] = headersDistinct[field] ?? []
    return second === undefined ? readCertificateHeader(value) : undefined
  }
  return socket instanceof TLSSocket ? certificateOf(socket)?.der : undefined
}

const certificates = new WeakMap<TLSSocket, { readonly der: Buffer; readonly field: string }>()

/** Reads the certificate of a socket, and the `Client-Cert` field for it (RFC 9440 section 2.1), once. */
function certificateOf(socket: TLSSocket) {
  const der = certificates.has(socket) ? undefined : socket.getPeerX509Certificate()?.raw
  if (der !== undefined) certificates.set(socket, { der, field: `:${der.toString('base64')}:` })
  return certificates.get(socket)
}

/** Returns the `Client-Cert` field for a certificate of `clientCa`; an upstream could trust the names in any other. */
export const certificateField = (socket: Socket): string | undefined =>
  socket instanceof TLSSocket && socket.authorized ? certificateOf(socket)?.field : undefined

const PEM = /^-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/**
 * Parses the certificate that a proxy reports: a byte sequence (RFC 9440 section 2.1), bare base64
 * (Traefik: of the whole chain, the client's first; Azure), URL-encoded PEM (nginx, AWS), or `Cert`
 * of `X-Forwarded-Client-Cert` (Envoy).
 */
export function readCertificateHeader(value: string | undefined): Buffer | undefined {
  if (value === undefined) return undefined
  const certificate = /^\s*(?:By|Hash|Cert|Chain|Subject|URI|DNS)=/i.test(value)
    ? certOfElement(value)
    : value
  if (certificate === undefined) return undefined
  const text = decodeSegment(certificate.trim())
  // A byte sequence is no list.
  const [first = ''] = text.startsWith(':') ? [text] : text.split(',', 1)
  const body = PEM.exec(first)?.[1] ?? first.replace(/^:([^:]*):$/, '$1')
  const base64 = body.replace(/\s/g, '')
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined
}

/**
 * Returns `Cert` of the one element of `X-Forwarded-Client-Cert`. Several elements are those of
 * several hops, of which a caller could have written the first: undefined.
 */
function certOfElement(element: string): string | undefined {
  // Within quotes at odd indexes; a quote in them is escaped.
  const parts = element.replaceAll('\\"', '').split('"')
  if (parts.some((part, i) => i % 2 === 0 && part.includes(','))) return undefined
  const quoted = parts.findIndex((part, i) => i % 2 === 0 && /(?:^|;)\s*Cert=$/i.test(part))
  if (quoted !== -1) return parts[quoted + 1]
  return /(?:^|;)\s*Cert=([^;]+)/i.exec(parts.filter((_, i) => i % 2 === 0).join(''))?.[1]
}
