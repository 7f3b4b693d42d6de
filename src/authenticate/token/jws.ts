import { isUtf8 } from 'node:buffer'
import { constants, verify, type KeyObject, type VerifyKeyObjectInput } from 'node:crypto'

/** A JWS in compact serialization (RFC 7515 section 7.1), taken apart but not verified. */
export interface Jws {
  readonly header: JsonObject
  /** The decoded payload: bytes, of which nothing is known yet. */
  readonly payload: Buffer
  readonly signature: Buffer
  /** The bytes that the signature covers. */
  readonly signed: Buffer
}

export type JsonObject = Readonly<Record<string, unknown>>

/** How one signature algorithm (RFC 7518 section 3.1, RFC 8037, RFC 9864) is verified, and with which keys. */
interface Scheme {
  readonly kty: 'RSA' | 'EC' | 'OKP'
  /** The only curve it goes with. */
  readonly crv?: string
  readonly digest: string | undefined
  /** Bytes of a signature, where the algorithm fixes them. */
  readonly signatureBytes?: number
  readonly options?: Omit<VerifyKeyObjectInput, 'key'>
}

const rsa = (digest: string): Scheme => ({
  kty: 'RSA',
  digest,
  options: { padding: constants.RSA_PKCS1_PADDING },
})
const pss = (digest: string): Scheme => ({
  kty: 'RSA',
  digest,
  options: { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST },
})
const ecdsa = (digest: string, crv: string, signatureBytes: number): Scheme => ({
  kty: 'EC',
  crv,
  digest,
  signatureBytes,
  options: { dsaEncoding: 'ieee-p1363' },
})
const ed25519: Scheme = { kty: 'OKP', crv: 'Ed25519', digest: undefined, signatureBytes: 64 }

/** Asymmetric signatures alone: neither `none` nor HS* can be asked for here. Nor can ES512, of which one takes 1.6 ms to verify. */
export const SCHEMES: ReadonlyMap<string, Scheme> = new Map([
  ['RS256', rsa('sha256')],
  ['RS384', rsa('sha384')],
  ['RS512', rsa('sha512')],
  ['PS256', pss('sha256')],
  ['PS384', pss('sha384')],
  ['PS512', pss('sha512')],
  ['ES256', ecdsa('sha256', 'P-256', 64)],
  ['ES384', ecdsa('sha384', 'P-384', 96)],
  ['EdDSA', ed25519],
  ['Ed25519', ed25519],
])

/** Three parts of the base64url alphabet (RFC 4648 section 5), without padding; only the payload may be empty. */
const COMPACT = /^[\w-]+\.[\w-]*\.[\w-]+$/

/**
 * Takes a compact JWS apart; undefined where it is none. Every part has one spelling only: padding, and bits left over
 * in a part's last character, are refused, so that nobody can write one token in several ways.
 */
export function parseJws(text: string): Jws | undefined {
  if (!COMPACT.test(text)) return undefined
  const first = text.indexOf('.')
  const last = text.lastIndexOf('.')
  if (!isCanonical(text, 0, first) || !isCanonical(text, first + 1, last)) return undefined
  if (!isCanonical(text, last + 1, text.length)) return undefined
  const header = readHeader(text.slice(0, first))
  if (header === undefined) return undefined
  return {
    header,
    payload: Buffer.from(text.slice(first + 1, last), 'base64url'),
    signature: Buffer.from(text.slice(last + 1), 'base64url'),
    signed: Buffer.from(text.slice(0, last), 'latin1'),
  }
}

/** An issuer writes the same few headers again and again: read once each. Long ones, such as those with a key, are not kept. */
const headers = new Map<string, JsonObject>()
const MAX_HEADERS = 100
const MAX_KEPT = 256

function readHeader(text: string): JsonObject | undefined {
  const known = headers.get(text)
  if (known !== undefined) return known
  const header = parseObject(Buffer.from(text, 'base64url'))
  if (header !== undefined && text.length <= MAX_KEPT) {
    if (headers.size === MAX_HEADERS) headers.clear()
    // A copy, since a part of a text keeps the whole of it, which is a token.
    headers.set(Buffer.from(text, 'latin1').toString('latin1'), header)
  }
  return header
}

/** Last characters that leave no bits over, by the number of characters past a whole group of four. */
const NO_BITS_LEFT = [undefined, '', 'AQgw', 'AEIMQUYcgkosw048']

function isCanonical(text: string, start: number, end: number): boolean {
  const allowed = NO_BITS_LEFT[(end - start) % 4]
  return allowed === undefined || allowed.includes(text[end - 1]!)
}

/** A JSON object out of UTF-8 bytes; undefined for anything else. The last of two members with one name counts (RFC 7519 section 4). */
export function parseObject(bytes: Buffer): JsonObject | undefined {
  if (!isUtf8(bytes)) return undefined
  try {
    const value: unknown = JSON.parse(bytes.toString())
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as JsonObject)
      : undefined
  } catch {
    return undefined
  }
}

/** Is the signature one of `algorithm` by `key`? The caller has chosen both to fit each other. Synchronous: a job queue costs more than the mathematics. */
export function verifyJws(jws: Jws, algorithm: string, key: KeyObject): boolean {
  const scheme = SCHEMES.get(algorithm)
  if (scheme === undefined) return false
  const { digest, signatureBytes, options } = scheme
  if (signatureBytes !== undefined && jws.signature.length !== signatureBytes) return false
  return verify(digest, jws.signed, { key, ...options }, jws.signature)
}
