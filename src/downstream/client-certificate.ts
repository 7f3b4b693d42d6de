import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { decodeSegment } from './target.ts'

/**
 * Returns the certificate of a TLS client in DER, from `Client-Cert` if a trusted proxy sends the
 * request, else from the socket.
 */
export function clientCertificate({ socket, headers }: IncomingMessage, trusted: boolean) {
  if (trusted) return readCertificateHeader(headers['client-cert'])
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
 * Parses a `Client-Cert` field: a byte sequence (RFC 9440 section 2.1), or the forms of older
 * proxies: bare base64, or URL-encoded PEM (the first of a chain).
 */
export function readCertificateHeader(value: string | string[] | undefined): Buffer | undefined {
  if (typeof value !== 'string') return undefined
  const text = decodeSegment(value.trim())
  const body = PEM.exec(text)?.[1] ?? text.replace(/^:(.*):$/, '$1')
  const base64 = body.replace(/\s/g, '')
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined
}
