import { KeyObject } from 'node:crypto'
import { setImmediate as immediate } from 'node:timers/promises'
import { importJWK, type JWK } from 'jose'
import { isObject, type Jws, SCHEMES, verifyJws } from './jws.ts'

/** One public key that verifies signatures. */
interface VerificationKey {
  readonly kid: string | undefined
  /** What its type, curve and `alg` allow. */
  readonly algorithms: ReadonlySet<unknown>
  readonly key: KeyObject
  /** True if verifying with it takes as long as with several others. */
  readonly slow: boolean
}

const MAX_KEYS = 100
/** Keys that are imported between two iterations of the event loop: one on P-384 takes 0.7 ms. */
const IMPORTED_AT_ONCE = 2
/** Who publishes a key chooses what verifying costs; within these bounds all that is tried for a token takes less than 1 ms. */
const MAX_TRIED = 5
const MIN_RSA_BITS = 2048
const MAX_RSA_BITS = 4096
const MAX_EXPONENT = 2n ** 64n
const USUAL_EXPONENT = 65537n

/** The usable keys of a JWK Set (RFC 7517 section 5). */
export class KeySet {
  readonly keys: readonly VerificationKey[]
  /** The JWK Set as JSON. */
  readonly source: string

  constructor(keys: readonly VerificationKey[], source: string) {
    this.keys = keys
    this.source = source
  }

  /** The keys to try for an algorithm, with this `kid` or without one: the first 5, or, where one of them is slow, the first. */
  find(algorithm: unknown, kid: unknown): readonly VerificationKey[] {
    const fitting = this.keys.filter(
      (key) => (kid === undefined || key.kid === kid) && key.algorithms.has(algorithm),
    )
    return fitting.slice(0, fitting.some(({ slow }) => slow) ? 1 : MAX_TRIED)
  }

  /** True if a signature is by one of these keys (`find`). Keys that the JWS carries or points to are ignored. */
  verifies(jws: Jws, kid: unknown): boolean {
    const alg = jws.header['alg'] as string
    return this.find(alg, kid).some(({ key }) => verifyJws(jws, alg, key))
  }
}

/** Reads the keys of a JWK Set that can be used; rejects if it is none. Returns `previous` itself if that is equal. */
export async function readKeySet(document: unknown, previous?: KeySet, maxKeys = MAX_KEYS): Promise<KeySet> {
  const list = (document as { readonly keys?: unknown } | null | undefined)?.keys
  if (!Array.isArray(list)) throw new Error('is no JWK Set: it has no list "keys"')
  if (list.length > maxKeys) throw new Error(`is a JWK Set of ${list.length} keys; ${maxKeys} at most`)
  const source = JSON.stringify(list)
  if (source === previous?.source) return previous
  const keys: VerificationKey[] = []
  for (const [i, jwk] of list.entries()) {
    if (i > 0 && i % IMPORTED_AT_ONCE === 0) await immediate()
    const key = await readKey(jwk)
    if (key !== undefined) keys.push(key)
  }
  return new KeySet(keys, source)
}

async function readKey(jwk: unknown): Promise<VerificationKey | undefined> {
  if (!isObject(jwk)) return undefined
  const { kty, crv, n, e, x, y, kid, alg, use, key_ops: operations } = jwk
  if (use !== undefined && use !== 'sig') return undefined
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes('verify')))
    return undefined
  if (kid !== undefined && typeof kid !== 'string') return undefined
  // A private key that is published is lost.
  if (privateMember(jwk) !== undefined) return undefined

  const algorithms = new Set<string>()
  for (const [name, scheme] of SCHEMES) {
    if (scheme.kty !== kty || (scheme.crv !== undefined && scheme.crv !== crv)) continue
    if (alg === undefined || alg === name) algorithms.add(name)
  }
  const [first] = algorithms
  if (first === undefined) return undefined
  try {
    const imported = await importJWK({ kty, crv, n, e, x, y } as JWK, first)
    const key = KeyObject.from(imported as Parameters<typeof KeyObject.from>[0])
    const details = key.asymmetricKeyDetails
    const { modulusLength: bits = MIN_RSA_BITS, publicExponent: exponent = USUAL_EXPONENT } = details ?? {}
    if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS) return undefined
    // With the exponent 1 every message is its own signature.
    if (exponent < 3n || exponent >= MAX_EXPONENT || exponent % 2n === 0n) return undefined
    return { kid, algorithms, key, slow: crv === 'P-384' || exponent > USUAL_EXPONENT }
  } catch {
    return undefined
  }
}

/** The first member of a private or symmetric key (RFC 7518 section 6) in a JWK. */
export function privateMember(jwk: object): string | undefined {
  return ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'].find((member) => member in jwk)
}
