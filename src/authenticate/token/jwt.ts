import { type Refusal, serviceUnavailable } from '../../errors.ts'
import { type Identity, readClaims, refuseHeader, type TokenRules } from './access-token.ts'
import type { Keys } from './jwks.ts'
import { type JsonObject, type Jws, verifyJws } from './jws.ts'
import type { KeySet, VerificationKey } from './key-set.ts'

export interface JwtOptions extends TokenRules {
  /** The signature algorithms taken, such as PS256. */
  readonly algorithms: readonly string[]
  readonly keys: Keys
  /** The clock, in Unix milliseconds. */
  readonly now: () => number
}

/** A verdict that holds until `expiresAt` of its identity, as long as the issuer publishes the key. */
export interface Verdict {
  readonly identity: Identity
  readonly key: VerificationKey
  readonly keys: Keys
}

/** A string says, for the caller, what is wrong with the token. */
export type VerifyJwt = (
  jws: Jws,
  claims: JsonObject,
) => Verdict | string | Refusal | Promise<Verdict | string | Refusal>

/** Verifies the JWT access tokens of one issuer (RFC 9068 section 4). A promise only where keys must be fetched first; it never rejects. */
export function createJwtVerifier(options: JwtOptions): VerifyJwt {
  const { keys, type, now } = options
  const algorithms = new Set(options.algorithms)

  function judge(
    set: KeySet | undefined,
    key: VerificationKey | undefined,
    jws: Jws,
    claims: JsonObject,
  ): Verdict | string | Refusal {
    if (set === undefined) return serviceUnavailable('Access tokens cannot be verified for now.', NO_KEYS)
    if (key === undefined) return 'The signature of the access token is not valid.'
    const identity = readClaims(jws.header, claims, options, now())
    return typeof identity === 'string' ? identity : { identity, key, keys }
  }

  return function verify(jws, claims) {
    const { alg } = jws.header
    if (typeof alg !== 'string' || !algorithms.has(alg)) {
      return 'The access token is signed with an algorithm that is not accepted.'
    }
    const refusal = refuseHeader(jws.header, type)
    if (refusal !== undefined) return refusal

    const known = keys.current()
    const key = known && keyOf(known, jws, alg)
    if (key === undefined) {
      // The issuer may have a new key, even under an old kid.
      const fresh = keys.refresh()
      if (fresh !== undefined)
        return fresh.then((set) => judge(set, set && keyOf(set, jws, alg), jws, claims))
    }
    return judge(known, key, jws, claims)
  }
}

const NO_KEYS = 'the keys of the issuer could not be read so far'

/** The key in `set` that verifies the signature. Keys that a token itself carries or points to are never looked at. */
function keyOf(set: KeySet, jws: Jws, algorithm: string): VerificationKey | undefined {
  const kid = jws.header['kid'] as string | undefined
  return set.find(algorithm, kid).find((candidate) => verifyJws(jws, algorithm, candidate.key))
}
