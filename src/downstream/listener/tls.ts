import type { TlsOptions } from 'node:tls'
import { suitesOf } from '../suites.ts'

/** Certificates and key are PEM; callers need a certificate of `clientCa` to connect, if it is given. */
export interface ListenerTls {
  readonly cert: string
  readonly key: string
  readonly clientCa: string | undefined
  /** A revocation list (CRL) in PEM for each item, at least one of each authority; none are checked if undefined. */
  readonly crl?: readonly string[] | undefined
  readonly requestClientCert: boolean
  /** Default: 1.2. */
  readonly minVersion?: 1.2 | 1.3
  /** OpenSSL names, separated by ":". The default suites of a version apply if no suite of it is named. */
  readonly ciphers?: string | undefined
}

/** Returns the TLS options of a listener, which does not accept certificates of public authorities. */
export function tlsOptions(tls: ListenerTls): TlsOptions {
  const { cert, key, clientCa, crl, requestClientCert, minVersion, ciphers } = tls
  return {
    cert,
    key,
    // If undefined, Node would accept client certificates of public authorities.
    ca: clientCa ?? [],
    ...(crl !== undefined && { crl: [...crl] }),
    requestCert: clientCa !== undefined || requestClientCert,
    rejectUnauthorized: clientCa !== undefined,
    minVersion: minVersion === 1.3 ? 'TLSv1.3' : 'TLSv1.2',
    ciphers: suitesOf(ciphers),
  }
}
