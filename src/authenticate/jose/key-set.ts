import { KeyObject } from 'node:crypto'
import { setImmediate as immediate } from 'node:timers/promises'
import type { JWK } from 'jose'
import { importJWK } from 'jose/key/import'
import { isObject, type JsonObject, withoutNulls } from '../../runtime/json.ts'
import { readJson, redactUrl } from './fetch-json.ts'
import { type Jws, SCHEMES, verifyJws } from './jws.ts'

export interface VerificationKey {
  readonly kid: string | undefined
  /** The algorithms that its type, curve and `alg` allow. */
  readonly algorithms: ReadonlySet<unknown>
  readonly key: KeyObject
  /** True if one verification takes as long as several with other keys. */
  readonly slow: boolean
}

/** Maximum usable keys of a set, and keys of any kind. */
const MAX_KEYS = 100
const MAX_PUBLISHED = 1000
/** Maximum unusable keys that an error names. */
const MAX_NAMED = 5
/**
 * Bounds for what a published key can make verification cost: all keys tried for one token take
 * less than 1 ms.
 */
const MAX_TRIED = 5
const MIN_RSA_BITS = 2048
const MAX_RSA_BITS = 4096
const MAX_EXPONENT = 2n ** 64n
const USUAL_EXPONENT = 65537n

/** True if a JWS names a key that a set does not have. */
export const lacksKey = ({ keys }: Pick<KeySet, 'keys'>, { header: { kid } }: Jws): boolean =>
  kid !== undefined && keys.every((key) => key.kid !== kid)

/** The usable keys of a JWK Set (RFC 7517 section 5). */
export interface KeySet {
  readonly keys: readonly VerificationKey[]
  /** The set as JSON. */
  readonly source: string
  /**
   * Returns the keys to try for an algorithm and a `kid`, if the token has one: the first 5, or
   * only the first if one is slow.
   */
  find(algorithm: unknown, kid: unknown): readonly VerificationKey[]
  /**
   * Returns true if one of these keys made the signature. Ignores keys that the JWS contains or
   * refers to.
   */
  verifies(jws: Jws): boolean
}

function createKeySet(keys: readonly VerificationKey[], source: string): KeySet {
  const find: KeySet['find'] = (algorithm, kid) => {
    const fitting = keys.filter(
      (key) => (kid === undefined || key.kid === kid) && key.algorithms.has(algorithm),
    )
    return fitting.slice(0, fitting.some(({ slow }) => slow) ? 1 : MAX_TRIED)
  }
  const verifies = (jws: Jws): boolean =>
    find(jws.header['alg'], jws.header['kid']).some(({ key }) => verifyJws(jws, key))
  return { keys, source, find, verifies }
}

/**
 * Reads the usable keys of a JWK Set; rejects if it is malformed. Returns `previous` itself if the
 * sets are equal.
 */
export async function readKeySet(document: unknown, previous?: KeySet, maxKeys = MAX_KEYS) {
  const list = (document as { readonly keys?: unknown } | null | undefined)?.keys
  if (!Array.isArray(list)) throw new Error('is not a JWK Set: it has no list "keys"')
  if (list.length > MAX_PUBLISHED) throw new Error(`is a JWK Set of over ${MAX_PUBLISHED} keys`)
  const source = JSON.stringify(list)
  if (source === previous?.source) return previous
  // Directories of banks publish all keys of an organisation, those for encryption and TLS, too.
  const usable = list.filter((jwk) => keyFault(jwk) === undefined)
  if (usable.length > maxKeys) throw new Error(`is a JWK Set of over ${maxKeys} keys for signatures`)
  const keys: VerificationKey[] = []
  for (const jwk of usable) {
    // One key in an iteration of the event loop: a key on P-384 takes 0.7 ms.
    await immediate()
    const key = await readKey(jwk)
    if (key !== undefined) keys.push(key)
  }
  return createKeySet(keys, source)
}

/** Describes for operators why the keys of a set without a usable key cannot be used. */
function describeUnusable({ source }: KeySet): string {
  const list = JSON.parse(source) as readonly unknown[]
  const named = list.slice(0, MAX_NAMED).map((jwk) => {
    const kid = isObject(jwk) && typeof jwk['kid'] === 'string' ? ` "${jwk['kid'].slice(0, 64)}"` : ''
    return `the key${kid} ${keyFault(jwk) ?? lengthFault(jwk as JsonObject) ?? 'is malformed'}`
  })
  return named.length === 0 ? 'it is empty' : named.join(', ')
}

/** Returns the fault in the length of an RSA key, as a phrase after its name. */
function lengthFault({ kty, n }: JsonObject): string | undefined {
  if (kty !== 'RSA' || typeof n !== 'string') return undefined
  const bits = Buffer.from(n, 'base64url').length * 8
  if (bits >= MIN_RSA_BITS && bits <= MAX_RSA_BITS)
    return 'is malformed, or has an exponent that is not accepted'
  return `has about ${bits} bits; ${MIN_RSA_BITS} to ${MAX_RSA_BITS} are accepted`
}

/** Returns a member of a key for the log. */
const memberOf = (jwk: JsonObject, name: string): string =>
  `${name} ${(JSON.stringify(jwk[name]) ?? 'none').slice(0, 64)}`

/** Returns why a key cannot verify signatures, as a phrase after its name; undefined if it may. */
function keyFault(published: unknown): string | undefined {
  if (!isObject(published)) return 'is not an object'
  const jwk = withoutNulls(published)
  const { kid, use, key_ops: operations = ['verify'] } = jwk
  if (use !== undefined && use !== 'sig' && use !== '')
    return `is not for signatures: ${memberOf(jwk, 'use')}`
  if (!Array.isArray(operations) || !operations.includes('verify'))
    return `is not to verify: ${memberOf(jwk, 'key_ops')}`
  if (kid !== undefined && typeof kid !== 'string') return 'has a "kid" that is not a text'
  const secret = privateMember(jwk)
  // A published private key is compromised.
  if (secret !== undefined) return `is private ("${secret}")`
  if (algorithmsOf(jwk).size > 0) return undefined
  return `fits no accepted algorithm: ${['kty', 'crv', 'alg'].map((name) => memberOf(jwk, name)).join(', ')}`
}

function algorithmsOf({ kty, crv, alg }: JsonObject): ReadonlySet<string> {
  const algorithms = new Set<string>()
  for (const [name, scheme] of SCHEMES) {
    if (scheme.kty !== kty || (scheme.crv !== undefined && scheme.crv !== crv)) continue
    // EdDSA and Ed25519 are two names of one algorithm (RFC 9864 section 2.2).
    if (alg === undefined || SCHEMES.get(alg as string) === scheme) algorithms.add(name)
  }
  return algorithms
}

/** Reads a public key (RFC 7517 section 4); returns undefined if it is malformed, or not to be used. */
export async function readKey(published: unknown): Promise<VerificationKey | undefined> {
  if (!isObject(published) || keyFault(published) !== undefined) return undefined
  const jwk = withoutNulls(published)
  const { kty, crv, n, e, x, y } = jwk
  const kid = jwk['kid'] as string | undefined
  const algorithms = algorithmsOf(jwk)
  const [first] = algorithms
  try {
    const imported = await importJWK({ kty, crv, n, e, x, y } as JWK, first)
    const key = KeyObject.from(imported as Parameters<typeof KeyObject.from>[0])
    const { modulusLength: bits = MIN_RSA_BITS, publicExponent: exponent = USUAL_EXPONENT } =
      key.asymmetricKeyDetails ?? {}
    if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS) return undefined
    // With the exponent 1 every message is its own signature.
    if (exponent < 3n || exponent >= MAX_EXPONENT || exponent % 2n === 0n) return undefined
    return { kid, algorithms, key, slow: crv === 'P-384' || exponent > USUAL_EXPONENT }
  } catch {
    return undefined
  }
}

/**
 * Returns the name of the first member of a private or symmetric key (RFC 7518 section 6) in a JWK.
 */
export const privateMember = (jwk: object): string | undefined =>
  ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'].find((member) => member in jwk)

export interface KeyLocation {
  readonly issuer: string
  /**
   * An http(s) URL, the path of a file, or a JWK Set; by default the `jwks_uri` of the issuer's
   * discovery document.
   */
  readonly jwks?: string | object | undefined
  /** Timeout of one load, discovery included. */
  readonly fetchTimeoutMs?: number
  /** Bounds of the key set. */
  readonly maxBytes?: number
  readonly maxKeys?: number
}

export class NoKeys extends Error {}

/**
 * Reads an issuer's keys once; returns `previous` if they are unchanged. Rejects, also if no key is
 * usable, with a message for operators.
 */
export async function loadKeys(location: KeyLocation, previous?: KeySet): Promise<KeySet> {
  const { issuer, jwks, fetchTimeoutMs = 3000, maxBytes, maxKeys } = location
  const signal = AbortSignal.timeout(fetchTimeoutMs)
  const source = jwks ?? (await discover(issuer, signal)).jwksUri
  const name = typeof source === 'string' ? redactUrl(source) : 'jwks'
  const document = typeof source === 'string' ? await readJson(source, signal, maxBytes) : source
  const keys = await readKeySet(document, previous, maxKeys).catch((error: Error) => {
    throw new Error(`${name} ${error.message}`, { cause: error })
  })
  if (keys.keys.length === 0)
    throw new NoKeys(`${name} holds no key that could verify a token: ${describeUnusable(keys)}`)
  return keys
}

/**
 * Reads the metadata of an issuer (OpenID Connect Discovery 1.0, sections 4 and 4.3) from the
 * document found under `base`.
 */
export async function discover(issuer: string, signal: AbortSignal, base = issuer) {
  const url = `${base.replace(/\/$/, '')}/.well-known/openid-configuration`
  const metadata = await readJson(url, signal)
  const { issuer: named, jwks_uri: jwksUri } = metadata
  if (named !== issuer) throw new Error(`${url} is the document of another issuer than ${issuer}`)
  const safe = issuer.startsWith('https:') ? /^https:\/\//i : /^https?:\/\//i
  if (typeof jwksUri === 'string' && URL.canParse(jwksUri) && safe.test(jwksUri)) return { jwksUri, metadata }
  throw new Error(`${url} names no jwks_uri that can be used`)
}
