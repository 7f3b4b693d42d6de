import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { decodeSegment } from './target.ts'

/**
 * Returns the caller's TLS client certificate in DER. From a trusted proxy it is the one that `Client-Cert` reports, since the
 * proxy's own is not the caller's; from any other peer it is the socket's, and the header is ignored.
 */
export function clientCertificate(
  { socket, headers }: IncomingMessage,
  trusted: boolean,
): Buffer | undefined {
  if (trusted) return readCertificateHeader(headers['client-cert'])
  return socket instanceof TLSSocket ? certificateOf(socket)?.der : undefined
}

const certificates = new WeakMap<TLSSocket, { readonly der: Buffer; readonly field: string }>()

/** Reads the certificate, and its byte sequence (RFC 9440 section 2.1), once for each socket. */
function certificateOf(socket: TLSSocket) {
  const der = certificates.has(socket) ? undefined : socket.getPeerX509Certificate()?.raw
  if (der !== undefined) certificates.set(socket, { der, field: `:${der.toString('base64')}:` })
  return certificates.get(socket)
}

/**
 * Returns the `Client-Cert` field (RFC 9440 section 2.1) for a socket on which the caller showed a certificate of `clientCa`.
 * Others are not forwarded: an upstream could take their names for verified.
 */
export function certificateField(socket: Socket): string | undefined {
  return socket instanceof TLSSocket && socket.authorized ? certificateOf(socket)?.field : undefined
}

const ARMOUR = /^-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/**
 * Parses a certificate in a header: a byte sequence (RFC 9440 section 2.1), or what proxies wrote before that, URL-encoded PEM
 * and bare base64. Of a chain in PEM it is the first.
 */
export function readCertificateHeader(value: string | string[] | undefined): Buffer | undefined {
  if (typeof value !== 'string') return undefined
  const text = value.trim()
  const body = text.startsWith('-') ? ARMOUR.exec(decodeSegment(text))?.[1] : text.replace(/^:(.*):$/, '$1')
  const base64 = body?.replace(/\s/g, '') ?? ''
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined
}
