import { compactVerify } from 'jose'
import { hasAudience, needsExtension, timeFault, typeOf } from '../authenticate/token/claims.ts'
import type { Keys } from '../authenticate/token/jwks.ts'
import { type JsonObject, parseJws, parseObject, SCHEMES } from '../authenticate/token/jws.ts'
import type { KeySet } from '../authenticate/token/key-set.ts'
import { type Refusal, serviceUnavailable } from '../errors.ts'

/** A JWT of a client, not verified. */
export interface ClientJwt {
  readonly text: string
  readonly header: JsonObject
  readonly claims: JsonObject
}

/** What is wrong: a phrase that follows the JWT's name, or a refusal that does not depend on it. */
export type JwtFault = string | Refusal | undefined

/** What the gateway verifies JWTs of clients by. */
export interface JwtRules {
  /** The audience. */
  readonly issuer: string
  /** Those of assertions that are accepted beside the issuer by `compatible`. */
  readonly audiences: readonly string[]
  /** `compatible` takes one of all (RFC 9126 section 2); `strict` the issuer alone (RFC 10070, FAPI 2). */
  readonly assertionAudience: 'compatible' | 'strict'
  readonly leewayMs: number
}

/** Clients' clocks run ahead: how far the `iat` of their JWTs may (FAPI 2 section 5.3.2.1). */
const MAX_AHEAD_MS = 60_000

/** Parses a signed JWT; undefined where it is none. */
export function parseJwt(text: string): ClientJwt | undefined {
  const jws = parseJws(text)
  const claims = parseObject(jws?.payload)
  return jws && claims && { text, header: jws.header, claims }
}

/**
 * Checks the header, whose `typ` may be `type` or JWT, and, where `keys` are given, the signature. The key's type, not the JWT,
 * decides what may verify it. Keys that do not fit are read again first, at most once a cool-down; 503 where none could be read so far.
 */
export async function signatureFault(
  jwt: ClientJwt,
  type: string,
  keys: Keys | undefined,
): Promise<JwtFault> {
  const { alg } = jwt.header
  if (needsExtension(jwt.header) || !['jwt', type].includes(typeOf(jwt.header))) {
    return `has a header that is not accepted: its typ may be JWT or ${type}, its kid a text, and it may have no crit.`
  }
  if (keys === undefined) return undefined
  if (typeof alg !== 'string' || !SCHEMES.has(alg)) {
    return 'is signed with an algorithm that is not accepted; use one such as PS256 or ES256.'
  }
  const known = keys.current()
  if (known !== undefined && (await isSignedBy(known, jwt, alg))) return undefined
  const fresh = await keys.refresh()
  if (fresh !== undefined && (await isSignedBy(fresh, jwt, alg))) return undefined
  if ((fresh ?? known) !== undefined) return 'has a signature that is not by a key of this client.'
  return serviceUnavailable(
    'The keys of this client cannot be read for now. Try again.',
    'the keys of the client could not be read so far',
  )
}

async function isSignedBy(set: KeySet, { text, header }: ClientJwt, alg: string): Promise<boolean> {
  for (const { key } of set.find(alg, header['kid'])) {
    try {
      await compactVerify(text, key, { algorithms: [alg] })
      return true
    } catch {
      // The next key may be the one.
    }
  }
  return false
}

/** What is wrong with the audience and the times of a JWT, as a phrase that follows its name. */
export function claimsFault(
  claims: JsonObject,
  { issuer, leewayMs }: JwtRules,
  audiences: readonly string[] = [],
): string | undefined {
  if (!hasAudience(claims['aud'], [issuer, ...audiences]))
    return `is for another audience; send the aud ${issuer}`
  const aheadMs = Math.max(leewayMs, MAX_AHEAD_MS)
  const fault = timeFault(claims, Date.now(), leewayMs, aheadMs)
  return fault && `${fault}.`
}
