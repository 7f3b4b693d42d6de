import { type Fault, invalidToken, unverifiable } from './challenge.ts'
import { type Identity, needsExtension, NOT_ACCESS, readClaims, type TokenRules, typeOf } from './claims.ts'
import type { Introspect } from './introspection.ts'
import type { Keys } from './jwks.ts'
import { type JsonObject, type Jws, verifyJws } from './jws.ts'
import type { KeySet, VerificationKey } from './key-set.ts'

/** An issuer whose tokens are accepted, and what they must say. */
export interface TrustedIssuer extends TokenRules {
  /** The signature algorithms taken, such as PS256. */
  readonly algorithms: readonly string[]
  /** For `WWW-Authenticate`; the first issuer's counts. */
  readonly realm: string
  /** For JWTs, which are matched by their `iss`. */
  readonly keys: Keys
  /** For opaque tokens; of several issuers one may have it. */
  readonly introspect?: Introspect | undefined
}

/** An accepted token. The verdict holds until `until`, Unix milliseconds, and as long as `keys`, if any, hold `key`. */
export interface Verdict {
  readonly identity: Identity
  readonly until: number
  readonly key?: VerificationKey
  readonly keys?: Keys
}

export type VerifyJwt = (jws: Jws, claims: JsonObject) => Verdict | Fault | Promise<Verdict | Fault>

/** Verifies the JWT access tokens of one issuer (RFC 9068 section 4). A promise only where keys must be fetched first; it never rejects. */
export function createJwtVerifier(issuer: TrustedIssuer, now: () => number): VerifyJwt {
  const { keys, type } = issuer
  const algorithms = new Set<unknown>(issuer.algorithms)

  function judge(set: KeySet | undefined, key: VerificationKey | undefined, jws: Jws, claims: JsonObject) {
    if (set === undefined) return unverifiable('the keys of the issuer could not be read so far')
    if (key === undefined) return invalidToken('The signature of the access token is not valid.')
    const identity = readClaims(jws.header, claims, issuer, now())
    return 'error' in identity ? identity : { identity, until: identity.expiresAt, key, keys }
  }

  return function verify(jws, claims) {
    if (!algorithms.has(jws.header['alg'])) {
      return invalidToken('The access token is signed with an algorithm that is not accepted.')
    }
    if (needsExtension(jws.header)) {
      return invalidToken('The header of the access token has a parameter that is not supported.')
    }
    const typ = typeOf(jws.header)
    if (typ !== 'at+jwt' && (typ !== 'jwt' || type === 'strict')) return NOT_ACCESS
    const known = keys.current()
    const key = known && keyOf(known, jws)
    if (key === undefined) {
      // The issuer may have a new key, even under an old kid.
      const fresh = keys.refresh()
      if (fresh !== undefined) return fresh.then((set) => judge(set, set && keyOf(set, jws), jws, claims))
    }
    return judge(known, key, jws, claims)
  }
}

/** The key in `set` that verifies the signature. Keys that a token carries or points to are ignored. */
function keyOf(set: KeySet, jws: Jws): VerificationKey | undefined {
  const { alg, kid } = jws.header as { readonly alg: string; readonly kid?: string }
  return set.find(alg, kid).find(({ key }) => verifyJws(jws, alg, key))
}
