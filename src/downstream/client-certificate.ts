import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { decodeSegment } from './target.ts'

/**
 * Returns the caller's TLS client certificate in DER. From a trusted proxy it is the one that `Client-Cert` reports, since the
 * proxy's own is not the caller's; from any other peer it is the socket's, and the header is ignored.
 */
export function clientCertificate(
  { socket, headers }: Pick<IncomingMessage, 'socket' | 'headers'>,
  trusted: boolean,
): Buffer | undefined {
  if (trusted) return readCertificateHeader(headers['client-cert'])
  return socket instanceof TLSSocket ? certificateOf(socket)?.der : undefined
}

interface Shown {
  readonly der: Buffer
  /** As a byte sequence (RFC 9440 section 2.1). */
  readonly field: string
}

const certificates = new WeakMap<TLSSocket, Shown>()

/** Reads the certificate once for each socket. */
function certificateOf(socket: TLSSocket): Shown | undefined {
  const known = certificates.get(socket)
  if (known !== undefined) return known
  const der = socket.getPeerX509Certificate()?.raw
  if (der === undefined) return undefined
  const shown = { der, field: `:${der.toString('base64')}:` }
  certificates.set(socket, shown)
  return shown
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
