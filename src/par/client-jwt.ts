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

/** What the gateway verifies JWTs of clients by. */
export interface JwtRules {
  /** The audience. */
  readonly issuer: string
  readonly leewayMs: number
  /** The clock, in Unix milliseconds. */
  readonly now: () => number
}

/** Clients' clocks run ahead: how far the `iat` of their JWTs may (FAPI 2 section 5.3.2.1). */
const MAX_AHEAD_MS = 60_000

/** Parses a signed JWT; undefined where it is none. */
export function parseJwt(text: string): ClientJwt | undefined {
  const jws = parseJws(text)
  const claims = parseObject(jws?.payload)
  return jws && claims && { text, header: jws.header, claims }
}

/** What is wrong with a header, as a phrase that follows the JWT's name. `type`: the one `typ` that it may have beside `JWT`. */
export function headerFault(header: JsonObject, type: string): string | undefined {
  if (!needsExtension(header) && ['jwt', type].includes(typeOf(header))) return undefined
  return `has a header that is not accepted: its typ may be JWT or ${type}, its kid a text, and it may have no crit.`
}

/**
 * Verifies a signature; `refuse` makes a refusal of a phrase that follows the JWT's name. 503 where no keys could be read so far.
 * The key's type, not the JWT, decides what may verify it. Keys that do not fit are read again first, at most once a cool-down.
 */
export async function refuseSignature(
  jwt: ClientJwt,
  keys: Keys,
  refuse: (fault: string) => Refusal,
): Promise<Refusal | undefined> {
  const { alg } = jwt.header
  if (typeof alg !== 'string' || !SCHEMES.has(alg)) {
    return refuse('is signed with an algorithm that is not accepted; use one such as PS256 or ES256.')
  }
  const known = keys.current()
  if (known !== undefined && (await isSignedBy(known, jwt, alg))) return undefined
  const fresh = await keys.refresh()
  if (fresh !== undefined && (await isSignedBy(fresh, jwt, alg))) return undefined
  if ((fresh ?? known) !== undefined) return refuse('has a signature that is not by a key of this client.')
  return serviceUnavailable(
    'The keys of this client cannot be read for now. Try again.',
    'the keys of the client could not be read so far',
  )
}

async function isSignedBy(set: KeySet, { text, header }: ClientJwt, alg: string): Promise<boolean> {
  for (const { key } of set.find(alg, header['kid'] as string | undefined)) {
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
  { aud, exp, nbf, iat }: JsonObject,
  { issuer, leewayMs, now }: JwtRules,
  audiences: readonly string[] = [],
): string | undefined {
  if (!hasAudience(aud, [issuer, ...audiences])) return `is for another audience; send the aud ${issuer}`
  const aheadMs = Math.max(leewayMs, MAX_AHEAD_MS)
  const fault = timeFault({ exp, nbf, iat }, now(), leewayMs, aheadMs)
  return fault && `${fault}.`
}
