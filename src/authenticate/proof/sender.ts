import type { IncomingMessage } from 'node:http'
import { clientCertificate } from '../../downstream/client-certificate.ts'

/** A URL without its query, in parts. */
export interface PublicUrl {
  readonly scheme: string
  /** With its port, unless that is the scheme's own. */
  readonly host: string
  readonly path: string
}

/** What a request shows of who sent it, beside the token. */
export interface Sender {
  readonly method: string
  /** The URL that the caller asked for. */
  readonly url: PublicUrl
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** The TLS client certificate in DER. */
  certificate(): Buffer | undefined
}

export interface SenderOptions {
  /** The canonical path. */
  readonly path: string
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** May the peer speak for others? */
  readonly trusted: boolean
}

/** The sender of a request, as it shows itself or as a trusted proxy shows it. */
export function senderOf(request: IncomingMessage, { path, proofs, trusted }: SenderOptions): Sender {
  const { headers, socket } = request
  const scheme = 'encrypted' in socket ? 'https' : 'http'
  const host = headers.host ?? ''
  return {
    method: request.method ?? '',
    url: {
      scheme: trusted ? (first(headers['x-forwarded-proto']) ?? scheme) : scheme,
      host: trusted ? (first(headers['x-forwarded-host']) ?? host) : host,
      path,
    },
    proofs,
    certificate: () => clientCertificate(request, trusted),
  }
}

/** The first of a list: what the proxy that the caller spoke to wrote. */
function first(value: string | string[] | undefined): string | undefined {
  const list = typeof value === 'string' ? value : value?.[0]
  return list?.split(',', 1)[0]!.trim().toLowerCase()
}
