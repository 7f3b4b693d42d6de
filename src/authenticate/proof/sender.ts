import type { IncomingMessage } from 'node:http'

/** A URL without its query, in parts. */
export interface PublicUrl {
  readonly scheme: string
  /** With its port, unless that is the scheme's own. */
  readonly host: string
  readonly path: string
}

/** What a request shows of its sender, beside the token. */
export interface Sender {
  readonly method: string
  /** The URL that the caller requested. */
  readonly url: PublicUrl
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** The TLS client certificate in DER. */
  certificate(): Buffer | undefined
}

export interface SenderOptions extends Pick<Sender, 'proofs' | 'certificate'> {
  /** The canonical path. */
  readonly path: string
  /** True if the peer is a trusted proxy, whose `X-Forwarded-*` fields count. */
  readonly trusted: boolean
}

/** The sender of a request, as the socket or a trusted proxy shows it. */
export function senderOf(request: IncomingMessage, options: SenderOptions): Sender {
  const { headers, socket, method = '' } = request
  const { path, proofs, trusted, certificate } = options
  // Of a list the first, which is what the proxy next to the caller wrote.
  const forwarded = (name: string): string | undefined =>
    trusted
      ? String(headers[name] ?? '')
          .split(',', 1)[0]!
          .trim()
          .toLowerCase() || undefined
      : undefined
  const scheme = forwarded('x-forwarded-proto') ?? ('encrypted' in socket ? 'https' : 'http')
  const host = forwarded('x-forwarded-host') ?? headers.host ?? ''
  return { method, url: { scheme, host, path }, proofs, certificate }
}
