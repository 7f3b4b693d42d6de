import { KeyObject } from 'node:crypto'
import { importJWK, type JWK } from 'jose'
import { SCHEMES, type JsonObject } from './jws.ts'

/** One public key that verifies signatures. Read twice from equal JWKs it is the same object. */
export interface VerificationKey {
  readonly kid: string | undefined
  /** What its type, curve and `alg` allow. */
  readonly algorithms: ReadonlySet<string>
  readonly key: KeyObject
  /** Does verifying with it take as long as with several others? */
  readonly slow: boolean
}

/** The usable keys of a JWK Set (RFC 7517 section 5). */
export interface KeySet {
  readonly size: number
  /** The keys to try for an algorithm, with this `kid` or without one: the first 5, or, where one of them is slow, the first. */
  find(algorithm: string, kid: string | undefined): readonly VerificationKey[]
  holds(key: VerificationKey): boolean
}

const MAX_KEYS = 100
const MIN_RSA_BITS = 2048
/** Whoever publishes a key chooses what verifying costs; within these bounds all that is tried for a token takes less than 1 ms. */
const MAX_RSA_BITS = 4096
const MAX_EXPONENT = 2n ** 64n
const MAX_TRIED = 5
const USUAL_EXPONENT = 65537n
const SLOW_CURVE = 'secp384r1'

const read = new WeakMap<VerificationKey, string>()
const members = new WeakMap<KeySet, readonly VerificationKey[]>()

/**
 * Reads a JWK Set. Keys of other kinds, for other uses, too weak, malformed or private are left out; what is no JWK Set
 * throws. Keys that `previous` holds too are taken over from it.
 */
export async function readKeySet(document: unknown, previous?: KeySet): Promise<KeySet> {
  const list = (document as { readonly keys?: unknown } | null | undefined)?.keys
  if (!Array.isArray(list)) throw new Error('is no JWK Set: it has no list "keys"')
  if (list.length > MAX_KEYS) throw new Error(`is a JWK Set of ${list.length} keys; ${MAX_KEYS} at most`)
  const known = new Map<string, VerificationKey>()
  for (const key of (previous && members.get(previous)) ?? []) known.set(read.get(key)!, key)

  const keys = new Set<VerificationKey>()
  for (const jwk of list as unknown[]) {
    const text = JSON.stringify(jwk)
    const key = known.get(text) ?? (await readKey(jwk))
    if (key === undefined) continue
    known.set(text, key)
    read.set(key, text)
    keys.add(key)
  }
  return keySetOf([...keys])
}

function keySetOf(keys: readonly VerificationKey[]): KeySet {
  const all = new Set(keys)
  const byKid = new Map<string, VerificationKey[]>()
  for (const key of keys) {
    if (key.kid === undefined) continue
    const same = byKid.get(key.kid)
    if (same === undefined) byKid.set(key.kid, [key])
    else same.push(key)
  }
  const set: KeySet = {
    size: keys.length,
    find(algorithm, kid) {
      const candidates = kid === undefined ? keys : (byKid.get(kid) ?? [])
      const fitting = candidates.filter((key) => key.algorithms.has(algorithm))
      return fitting.slice(0, fitting.some(({ slow }) => slow) ? 1 : MAX_TRIED)
    },
    holds: (key) => all.has(key),
  }
  members.set(set, keys)
  return set
}

async function readKey(value: unknown): Promise<VerificationKey | undefined> {
  if (typeof value !== 'object' || value === null) return undefined
  const jwk = value as JsonObject
  const { kty, crv, kid, alg, use, key_ops: operations } = jwk
  if (use !== undefined && use !== 'sig') return undefined
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes('verify')))
    return undefined
  if (kid !== undefined && typeof kid !== 'string') return undefined
  // Whoever publishes a private key has lost it.
  if ('d' in jwk || 'k' in jwk) return undefined

  const algorithms = new Set<string>()
  for (const [name, scheme] of SCHEMES) {
    if (scheme.kty !== kty || (scheme.crv !== undefined && scheme.crv !== crv)) continue
    if (alg === undefined || alg === name) algorithms.add(name)
  }
  const [first] = algorithms
  if (first === undefined) return undefined
  try {
    const { n, e, x, y } = jwk
    const imported = await importJWK({ kty, crv, n, e, x, y } as JWK, first)
    const key = KeyObject.from(imported as Parameters<typeof KeyObject.from>[0])
    return isUsable(key) ? { kid, algorithms, key, slow: isSlow(key) } : undefined
  } catch {
    return undefined
  }
}

function isUsable({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): boolean {
  if (asymmetricKeyType !== 'rsa') return true
  const { modulusLength = 0, publicExponent = 0n } = asymmetricKeyDetails ?? {}
  if (modulusLength < MIN_RSA_BITS || modulusLength > MAX_RSA_BITS) return false
  // With the exponent 1 every message is its own signature.
  return publicExponent >= 3n && publicExponent < MAX_EXPONENT && publicExponent % 2n === 1n
}

function isSlow({ asymmetricKeyDetails: { namedCurve, publicExponent = 0n } = {} }: KeyObject): boolean {
  return namedCurve === SLOW_CURVE || publicExponent > USUAL_EXPONENT
}
