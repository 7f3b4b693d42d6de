import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { decodeSegment } from './target.ts'

/**
 * Returns the certificate of a TLS client in DER: if a trusted proxy sends the request, from its
 * `field`, in lower case, else from the socket. Calls `onSeveral` and returns undefined if the field
 * occurs twice, or could name several certificates: the caller may have written one.
 */
export function clientCertificate(
  { socket, headersDistinct }: IncomingMessage,
  trusted: boolean,
  field: string,
  onSeveral: () => void,
) {
  if (trusted) {
    const [value, second] = headersDistinct[field] ?? []
    const certificate = second === undefined ? readCertificateHeader(value) : 'several'
    if (certificate !== 'several') return certificate
    onSeveral()
    return undefined
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
 * of `X-Forwarded-Client-Cert` (Envoy). Returns `several` if it could name more than one client's.
 */
export function readCertificateHeader(value: string | undefined): Buffer | 'several' | undefined {
  if (value === undefined) return undefined
  const isElement = /^\s*(?:By|Hash|Cert|Chain|Subject|URI|DNS)\s*=/i.test(value)
  if (isElement && hasSeveral(value)) return 'several'
  const certificate = isElement ? certOfElement(value) : value
  if (certificate === undefined) return undefined
  const text = decodeSegment(certificate.trim())
  // A byte sequence is not a list.
  const [first = ''] = text.startsWith(':') ? [text] : text.split(',', 1)
  const body = PEM.exec(first)?.[1] ?? first.replace(/^:([^:]*):$/, '$1')
  const base64 = body.replace(/\s/g, '')
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined
}

/** `Cert=` of an element, in any case, outside quotes. */
const CERT = /(?:^|;)\s*Cert\s*=/gi

/** Splits a value at its quotes: what is within them is at odd indexes. A quote in them is escaped. */
const splitAtQuotes = (value: string): readonly string[] => value.replaceAll('\\"', '').split('"')

const outsideQuotes = (parts: readonly string[]): readonly string[] =>
  parts.map((part, i) => (i % 2 === 0 ? part : '"'))

/**
 * True if an `X-Forwarded-Client-Cert` has several elements, which are those of several hops, or
 * several `Cert`: a caller could have written one of them.
 */
function hasSeveral(value: string): boolean {
  const text = outsideQuotes(splitAtQuotes(value)).join('')
  return text.includes(',') || (text.match(CERT) ?? []).length > 1
}

/** Returns `Cert` of the one element of `X-Forwarded-Client-Cert`. */
function certOfElement(element: string): string | undefined {
  const parts = splitAtQuotes(element)
  const unquoted = outsideQuotes(parts)
  const quoted = unquoted.findIndex((part) => /(?:^|;)\s*Cert\s*=\s*$/i.test(part))
  if (quoted !== -1) return parts[quoted + 1]
  return /(?:^|;)\s*Cert\s*=([^;"]+)/i.exec(unquoted.join(''))?.[1]
}
