import type { Keys } from '../authenticate/token/jwks.ts'
import { type JsonObject, SCHEMES } from '../authenticate/token/jws.ts'
import type { Refusal } from '../errors.ts'
import { isSignedBy, keysUnavailable } from './client-keys.ts'
import { isPlainHeader, type Jwt, refuseTimes } from './jwt.ts'

/** What an assertion must say of its audience and its times. */
export interface AssertionRules {
  readonly issuer: string
  /** Accepted beside the issuer by `compatible`. */
  readonly audiences: readonly string[]
  /** `compatible` takes one of all (RFC 9126 section 2); `strict` the issuer alone (RFC 10070, FAPI 2). */
  readonly assertionAudience: 'compatible' | 'strict'
  readonly leewayMs: number
  /** The clock, in Unix milliseconds. */
  readonly now: () => number
}

/**
 * Verifies a client assertion (RFC 7523 section 3) of a client with known keys. A string says, for the caller, what is wrong
 * with it; 503 where the keys could not be read so far; undefined where it is good. Single use of the jti is left to the
 * identity backend: a client may send an assertion again that the backend never saw.
 */
export async function refuseAssertion(
  assertion: Jwt | undefined,
  clientId: string,
  keys: Keys,
  rules: AssertionRules,
): Promise<string | Refusal | undefined> {
  if (assertion === undefined) return 'The client_assertion is no signed JWT.'
  const { jws, claims } = assertion
  if (!isPlainHeader(jws.header, 'client-authentication+jwt')) {
    return 'The header of the client_assertion may have the typ JWT or client-authentication+jwt, a kid that is a text, and no crit.'
  }
  // The key's type, not the token, decides what may verify it; HS* and none are no schemes.
  const { alg } = jws.header
  if (typeof alg !== 'string' || !SCHEMES.has(alg)) {
    return 'The client_assertion is signed with an algorithm that is not accepted; use one such as PS256 or ES256.'
  }
  const signed = await isSignedBy(keys, jws, alg)
  if (signed === undefined) return keysUnavailable()
  if (!signed) return 'The signature of the client_assertion is not by a key of this client.'
  return refuseClaims(claims, clientId, rules)
}

function refuseClaims(claims: JsonObject, clientId: string, rules: AssertionRules): string | undefined {
  const { iss, sub, aud, exp, jti } = claims
  if (iss !== clientId || sub !== clientId)
    return 'The client_assertion must have the client_id as iss and sub.'
  if (!isForUs(aud, rules))
    return `The client_assertion is for another audience; send the aud ${rules.issuer}`
  if (exp === undefined) return 'The client_assertion must have an exp.'
  const fault = refuseTimes(claims, rules.now(), rules.leewayMs)
  if (fault !== undefined) return `The client_assertion ${fault}.`
  return typeof jti === 'string' && jti !== ''
    ? undefined
    : 'The client_assertion must have a jti, which is a text.'
}

function isForUs(aud: unknown, { issuer, audiences, assertionAudience }: AssertionRules): boolean {
  const list: readonly unknown[] = Array.isArray(aud) ? aud : [aud]
  if (assertionAudience === 'strict') return list.length === 1 && list[0] === issuer
  return list.some((one) => one === issuer || audiences.includes(one as string))
}
