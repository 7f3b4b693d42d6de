import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { isHtuOf } from './htu.ts'
import { type JsonObject, type Jws, parseJws, parseObject, verifyJws } from '../token/jws.ts'
import { type KeySet, readKeySet } from '../token/key-set.ts'
import type { Sender } from './sender.ts'
import { type PublicJwk, readPublicJwk } from './thumbprint.ts'

export interface ProofOptions {
  /** Is this, in lower case and without its port, a host of this gateway? Proofs for others are refused. */
  serves(host: string): boolean
  /** The signature algorithms taken, such as ES256. */
  readonly algorithms?: readonly string[]
  /** How old a proof may be. */
  readonly maxAgeMs?: number
  /** How far ahead of this clock a client's may be. */
  readonly leewayMs?: number
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** What is wrong with a proof, in words for the caller (RFC 9449 section 7.1). */
export interface ProofFault {
  readonly error: 'invalid_dpop_proof' | 'invalid_token'
  readonly description: string
}

/** What a token asks of a proof. */
export interface Bound {
  /** The thumbprint of the key. */
  readonly jkt: string
  /** The base64url SHA-256 of the token. */
  readonly ath: string
}

/** A proof that is good, but may have been used before: it is to be charged beside the limits of its call. */
export interface Proof {
  /** The same for the same proof alone. */
  readonly id: string
  /** How long it must not pass again: the same for each use, so that none is forgotten before the proof is too old. */
  readonly windowMs: number
}

/** Verifies DPoP proofs. */
export interface Proofs {
  readonly algorithms: readonly string[]
  /** The one good proof that the request carries. Asks no store; never rejects. */
  verify(bound: Bound, sender: Sender): Promise<Proof | ProofFault>
}

const ALGORITHMS = ['ES256', 'PS256', 'EdDSA', 'Ed25519', 'RS256']
const MAX_PROOF = 8 * 1024
const MAX_JTI = 256
const KNOWN_KEYS = 1000

const invalid = (description: string): ProofFault => ({ error: 'invalid_dpop_proof', description })

/**
 * Verifies proofs of possession by RFC 9449 section 4.3. Nonces (section 9), which are the server's choice, are not asked for: against
 * proofs made ahead of time the age alone stands, and a client that waits for a nonce would call twice.
 */
export function createProofs(options: ProofOptions): Proofs {
  const { serves, algorithms = ALGORITHMS, maxAgeMs = 60_000, leewayMs = 5000, now = Date.now } = options
  const keys = new LRUCache<string, KeySet>({ max: KNOWN_KEYS })

  async function verify({ jkt, ath }: Bound, sender: Sender): Promise<Proof | ProofFault> {
    const [proof, ...more] = sender.proofs
    if (proof === undefined || more.length > 0) return invalid('Send one DPoP header, with one proof.')
    const jws = proof.length > MAX_PROOF ? undefined : parseJws(proof)
    const claims = jws && parseObject(jws.payload)
    if (claims === undefined) return invalid('The DPoP proof is malformed.')
    const { typ, alg, jwk } = jws!.header
    if (typ !== 'dpop+jwt' || 'crit' in jws!.header || 'b64' in jws!.header) {
      return invalid('The DPoP header holds no DPoP proof.')
    }
    if (typeof alg !== 'string' || !algorithms.includes(alg)) {
      return invalid('The DPoP proof is signed with an algorithm that is not accepted.')
    }
    const key = readPublicJwk(jwk)
    if (key === undefined) return invalid('The DPoP proof holds no public key.')
    if (key.thumbprint !== jkt) {
      return { error: 'invalid_token', description: 'The access token is bound to another key.' }
    }
    if (!(await isSigned(jws!, alg, key))) return invalid('The signature of the DPoP proof is not valid.')
    return judge(claims, { jkt, ath }, sender)
  }

  /** Keys are imported once they are known to be some token's, and remembered: a client signs many proofs with one. */
  async function isSigned(jws: Jws, algorithm: string, { jwk, thumbprint }: PublicJwk): Promise<boolean> {
    let set = keys.get(thumbprint)
    if (set === undefined) {
      set = await readKeySet({ keys: [jwk] })
      keys.set(thumbprint, set)
    }
    return set.find(algorithm, undefined).some(({ key }) => verifyJws(jws, algorithm, key))
  }

  function judge(
    { jti, htm, htu, iat, ath }: JsonObject,
    bound: Bound,
    { method, url }: Sender,
  ): Proof | ProofFault {
    if (htm !== method) return invalid('The DPoP proof is for another method.')
    if (!isHtuOf(htu, url, serves)) return invalid('The DPoP proof is for another URL.')
    if (ath !== bound.ath) return invalid('The DPoP proof is for another access token.')
    if (typeof jti !== 'string' || jti === '' || jti.length > MAX_JTI) {
      return invalid('The DPoP proof has no jti, or one that is too long.')
    }
    if (typeof iat !== 'number') return invalid('The DPoP proof does not say when it was made.')
    const ageMs = now() - iat * 1000
    if (!(ageMs <= maxAgeMs)) return invalid('The DPoP proof is too old.')
    if (ageMs < -leewayMs) return invalid('The DPoP proof is from the future.')

    // From the leeway before its iat to its age after it, and by another gateway's clock a leeway longer.
    return { id: hash('sha256', `${bound.jkt}.${jti}`, 'base64url'), windowMs: maxAgeMs + 2 * leewayMs }
  }

  return { algorithms, verify }
}
