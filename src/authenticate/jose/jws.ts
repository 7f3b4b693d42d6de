import { constants, verify, type KeyObject, type VerifyKeyObjectInput } from 'node:crypto'
import { memoize } from '../../runtime/memoize.ts'
import { type JsonObject, parseObject } from '../../runtime/json.ts'

/** A JWS, decoded but not verified. */
export interface Jws {
  readonly header: JsonObject
  readonly payload: Buffer
  readonly signature: Buffer
  /** The bytes that the signature covers. */
  readonly signed: Buffer
}

/**
 * The keys and the parameters of a signature algorithm (RFC 7518 section 3.1, RFC 8037, RFC 9864).
 */
interface SignatureScheme {
  readonly kty: 'RSA' | 'EC' | 'OKP'
  readonly crv?: string
  readonly digest: string | undefined
  readonly options?: Omit<VerifyKeyObjectInput, 'key'>
}

const PSS = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST }
const P1363 = { dsaEncoding: 'ieee-p1363' } as const
const ED25519: SignatureScheme = { kty: 'OKP', crv: 'Ed25519', digest: undefined }

/**
 * The algorithms that are accepted: asymmetric signatures only, and no ES512 (1.6 ms to verify).
 */
export const SCHEMES: ReadonlyMap<string, SignatureScheme> = new Map<string, SignatureScheme>([
  ['PS256', { kty: 'RSA', digest: 'sha256', options: PSS }],
  ['PS384', { kty: 'RSA', digest: 'sha384', options: PSS }],
  ['PS512', { kty: 'RSA', digest: 'sha512', options: PSS }],
  ['ES256', { kty: 'EC', crv: 'P-256', digest: 'sha256', options: P1363 }],
  ['ES384', { kty: 'EC', crv: 'P-384', digest: 'sha384', options: P1363 }],
  ['EdDSA', ED25519],
  ['Ed25519', ED25519],
  ['RS256', { kty: 'RSA', digest: 'sha256' }],
  ['RS384', { kty: 'RSA', digest: 'sha384' }],
  ['RS512', { kty: 'RSA', digest: 'sha512' }],
])

/**
 * Parses a JWS in compact serialization (RFC 7515 section 7.1); returns undefined for other text.
 * Padding and unused bits are refused, so that no token has two encodings, which caches would take
 * for two tokens.
 */
export function parseJws(text: string): Jws | undefined {
  const first = text.indexOf('.')
  const last = text.lastIndexOf('.')
  if (first === last || last === text.length - 1) return undefined
  const header = first > MAX_HEADER ? undefined : parseHeader(text.slice(0, first))
  const payload = decode(text.slice(first + 1, last))
  const signature = decode(text.slice(last + 1))
  if (header === undefined || payload === undefined || signature === undefined) return undefined
  return { header, payload, signature, signed: Buffer.from(text.slice(0, last), 'latin1') }
}

/**
 * Maximum length of a header, enough for a chain of certificates: parsing 50 kB of nested lists
 * takes 1 ms.
 */
const MAX_HEADER = 16 * 1024
/** An issuer uses only a few headers. Long headers, such as those with a key, are not cached. */
const parseHeader = memoize((text) => parseObject(decode(text)), 100, 256)

/**
 * Decodes base64url (RFC 4648 section 5) without padding; returns undefined if encoding does not
 * give the same text.
 */
function decode(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? bytes : undefined
}

/**
 * Returns true if `key`, which fits the algorithm of the header, made the signature. Synchronous:
 * queueing to the thread pool costs more than the verification.
 */
export function verifyJws(jws: Jws, key: KeyObject): boolean {
  const { digest, options } = SCHEMES.get(jws.header['alg'] as string)!
  // OpenSSL accepts a PSS signature without its leading zeros, a second encoding (RFC 8017 section
  // 8.1.2, step 1).
  const bits = key.asymmetricKeyDetails?.modulusLength
  if (bits !== undefined && jws.signature.length !== Math.ceil(bits / 8)) return false
  // PKCS #1 v1.5 has no options: in Node.js 24 an object takes 10 us more than a key; the
  // verification takes 20.
  return verify(digest, jws.signed, options === undefined ? key : { key, ...options }, jws.signature)
}

/**
 * Returns true if a header needs an extension (RFC 7515 section 4.1.11, RFC 7797), or its `kid` is
 * not a string.
 */
export function needsExtension(header: JsonObject): boolean {
  const { kid = '' } = header
  return typeof kid !== 'string' || 'crit' in header || 'b64' in header || 'zip' in header
}
