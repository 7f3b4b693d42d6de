import { generateKeyPairSync, type KeyObject, randomBytes, sign, X509Certificate } from 'node:crypto'

export interface TestCertificate {
  /** PEM, for `node:tls`. */
  readonly key: string
  readonly cert: string
  readonly der: Buffer
  /** The `x5t#S256` of tokens that are bound to the certificate. */
  readonly thumbprint: string
}

export const ECDSA_WITH_SHA256 = Buffer.from('300a06082a8648ce3d040302', 'hex')
const VERSION_3 = Buffer.from('a003020102', 'hex')
const SUBJECT_ALT_NAME = Buffer.from('0603551d11', 'hex')
const COMMON_NAME = Buffer.from('0603550403', 'hex')

/** A new self-signed certificate of a new P-256 key, valid for 30 days by default; with `ip`, also for this IPv4 address. */
export function makeCertificate(name = 'localhost', validMs = 30 * 86_400_000, ip?: string): TestCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const subject = nameOf(name)
  const body = sequence(
    ...(ip === undefined ? [] : [VERSION_3]),
    tlv(0x02, Buffer.concat([Buffer.of(1), randomBytes(8)])),
    ECDSA_WITH_SHA256,
    subject,
    sequence(time(-86_400_000), time(validMs)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    ...(ip === undefined ? [] : [alternativeNames(name, ip)]),
  )
  const certificate = new X509Certificate(signed(body, privateKey))
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    cert: certificate.toString(),
    der: certificate.raw,
    thumbprint: Buffer.from(certificate.fingerprint256.replaceAll(':', ''), 'hex').toString('base64url'),
  }
}

/** A subject or issuer with one common name. */
export const nameOf = (name: string): Buffer =>
  sequence(tlv(0x31, sequence(COMMON_NAME, tlv(0x0c, Buffer.from(name)))))

/** Appends the signature of a P-256 key, as in certificates and revocation lists. */
export function signed(body: Buffer, key: KeyObject): Buffer {
  const signature = tlv(0x03, Buffer.concat([Buffer.of(0), sign('sha256', body, key)]))
  return sequence(body, ECDSA_WITH_SHA256, signature)
}

/** The extension subjectAltName (RFC 5280 section 4.2.1.6). */
function alternativeNames(name: string, ip: string): Buffer {
  const names = sequence(tlv(0x82, Buffer.from(name)), tlv(0x87, Buffer.from(ip.split('.').map(Number))))
  return tlv(0xa3, sequence(sequence(SUBJECT_ALT_NAME, tlv(0x04, names))))
}

/** Encodes an instant, relative to now in milliseconds. */
export function time(fromNowMs: number): Buffer {
  const iso = new Date(Date.now() + fromNowMs).toISOString()
  return tlv(0x17, Buffer.from(`${iso.slice(2, 19).replace(/\D/g, '')}Z`))
}

export function sequence(...parts: readonly Buffer[]): Buffer {
  return tlv(0x30, Buffer.concat(parts))
}

/** Encodes a DER value with its tag and length. */
export function tlv(tag: number, value: Buffer): Buffer {
  const { length } = value
  // DER allows only the shortest form of a length (X.690 section 10.1).
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), value])
  if (length < 0x100) return Buffer.concat([Buffer.of(tag, 0x81, length), value])
  return Buffer.concat([Buffer.of(tag, 0x82, length >> 8, length & 0xff), value])
}
