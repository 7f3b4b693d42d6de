import { type Fault, invalidToken, unverifiable } from './challenge.ts'
import { type Identity, needsExtension, NOT_ACCESS, readClaims, type TokenRules, typeOf } from './claims.ts'
import type { Introspect } from './introspection.ts'
import type { Keys } from './jwks.ts'
import type { JsonObject, Jws } from './jws.ts'
import type { KeySet } from './key-set.ts'

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

/** An accepted token. Holds until `until`, Unix milliseconds, and as long as `set` is what `keys` hold. */
export interface VerifiedToken {
  readonly identity: Identity
  readonly until: number
  readonly keys?: Keys
  readonly set?: KeySet
}

export type Verified = VerifiedToken | Fault | Promise<VerifiedToken | Fault>

/** Verifies a JWT access token of an issuer (RFC 9068 section 4). A promise only where keys must be fetched first; it never rejects. */
export function verifyJwt(issuer: TrustedIssuer, jws: Jws, claims: JsonObject): Verified {
  const { keys, type, algorithms } = issuer
  const { alg, kid } = jws.header
  if (!algorithms.includes(alg as string)) {
    return invalidToken('The access token is signed with an algorithm that is not accepted.')
  }
  if (needsExtension(jws.header)) {
    return invalidToken('The header of the access token has a parameter that is not supported.')
  }
  const typ = typeOf(jws.header)
  if (typ !== 'at+jwt' && (typ !== 'jwt' || type === 'strict')) return NOT_ACCESS
  const known = keys.current()
  if (known?.verifies(jws, kid)) return evaluate(issuer, known, true, jws, claims)
  // The issuer may have a new key, even under an old kid.
  const fresh = keys.refresh()
  if (fresh === undefined) return evaluate(issuer, known, false, jws, claims)
  return fresh.then((set) => evaluate(issuer, set, set?.verifies(jws, kid), jws, claims))
}

function evaluate(
  issuer: TrustedIssuer,
  set: KeySet | undefined,
  signed: boolean | undefined,
  jws: Jws,
  claims: JsonObject,
): VerifiedToken | Fault {
  if (set === undefined) return unverifiable('the keys of the issuer could not be read so far')
  if (!signed) return invalidToken('The signature of the access token is not valid.')
  const identity = readClaims(jws.header, claims, issuer)
  if ('error' in identity) return identity
  return { identity, until: (claims['exp'] as number) * 1000, keys: issuer.keys, set }
}
