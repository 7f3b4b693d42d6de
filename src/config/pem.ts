import { X509Certificate } from 'node:crypto'

const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/** Returns the certificates of a PEM file, except those that OpenSSL cannot read. */
export const certificatesIn = (pem: string): readonly X509Certificate[] =>
  [...pem.matchAll(CERTIFICATE)].flatMap(([text]) => {
    try {
      return [new X509Certificate(text)]
    } catch {
      return []
    }
  })
