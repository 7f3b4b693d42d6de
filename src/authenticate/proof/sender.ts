import type { IncomingMessage } from 'node:http'

/** What a request shows of its sender, beside the token. */
export interface Sender {
  readonly method: string
  readonly scheme: string
  /** With its port, unless that is the scheme's own. */
  readonly host: string
  /** The canonical path. */
  readonly path: string
  /** Every `DPoP` value. */
  readonly proofs: readonly string[]
  /** The TLS client certificate in DER. */
  certificate(): Buffer | undefined
}

interface SenderOptions extends Pick<Sender, 'path' | 'proofs' | 'certificate'> {
  /** True if the peer is a trusted proxy, whose `X-Forwarded-*` fields count. */
  readonly trusted: boolean
}

/** The sender of a request, with the URL that it requested, as the socket or a trusted proxy shows it. */
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
  return { method, scheme, host, path, proofs, certificate }
}
