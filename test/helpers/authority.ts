import { generateKeyPairSync, type KeyObject, randomBytes, X509Certificate } from 'node:crypto'
import { ECDSA_WITH_SHA256, nameOf, sequence, signed, time, tlv } from './self-signed.ts'

const DAY_MS = 86_400_000
const VERSION_3 = Buffer.from('a003020102', 'hex')
/** The extension basicConstraints with CA:TRUE, critical. */
const IS_AUTHORITY = tlv(0xa3, sequence(Buffer.from('300f0603551d130101ff040530030101ff', 'hex')))

export interface IssuedCertificate {
  readonly cert: string
  readonly key: string
  readonly serial: Buffer
}

interface ListTimes {
  /** From now; negative for the past. */
  readonly nextUpdateMs?: number | 'none'
  readonly thisUpdateMs?: number
}

/** A certificate authority with a P-256 key, which issues client certificates and revocation lists. */
export function makeAuthority(name: string) {
  const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' })

  function certificate(subject: string, key: KeyObject, serial: Buffer, ...extensions: Buffer[]) {
    const body = sequence(
      VERSION_3,
      tlv(0x02, serial),
      ECDSA_WITH_SHA256,
      nameOf(name),
      sequence(time(-DAY_MS), time(30 * DAY_MS)),
      nameOf(subject),
      key.export({ type: 'spki', format: 'der' }),
      ...extensions,
    )
    return new X509Certificate(signed(body, pair.privateKey)).toString()
  }
  const newSerial = () => Buffer.concat([Buffer.of(1), randomBytes(8)])

  function issue(subject: string): IssuedCertificate {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const serial = newSerial()
    const key = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
    return { cert: certificate(subject, publicKey, serial), key, serial }
  }
  /** Returns a revocation list in PEM, valid for a day from an hour ago by default. */
  function list(revoked: readonly IssuedCertificate[], times: ListTimes = {}): string {
    const { thisUpdateMs = -DAY_MS / 24, nextUpdateMs = DAY_MS } = times
    const entries = revoked.map(({ serial }) => sequence(tlv(0x02, serial), time(-DAY_MS / 2)))
    const body = sequence(
      tlv(0x02, Buffer.of(1)),
      ECDSA_WITH_SHA256,
      nameOf(name),
      time(thisUpdateMs),
      ...(nextUpdateMs === 'none' ? [] : [time(nextUpdateMs)]),
      ...(entries.length > 0 ? [sequence(...entries)] : []),
    )
    const base64 = signed(body, pair.privateKey).toString('base64').replaceAll(/.{64}/g, '$&\n')
    return `-----BEGIN X509 CRL-----\n${base64.trimEnd()}\n-----END X509 CRL-----\n`
  }
  return { cert: certificate(name, pair.publicKey, newSerial(), IS_AUTHORITY), issue, list }
}
