import { isTime } from '../authenticate/token/claims.ts'
import { type JsonObject, type Jws, parseJws, parseObject } from '../authenticate/token/jws.ts'

/** A JWT whose signature is not verified. */
export interface Jwt {
  readonly jws: Jws
  readonly claims: JsonObject
}

/** Clients' clocks run ahead; a JWT made later than this from now was not made by one (FAPI 2 section 5.3.2.1). */
const MOST_AHEAD_MS = 60_000

/** Takes a signed JWT apart; undefined where it is none. */
export function readJwt(text: string): Jwt | undefined {
  const jws = parseJws(text)
  const claims = jws && parseObject(jws.payload)
  return jws && claims && { jws, claims }
}

/**
 * What is wrong with the times of a JWT, in words that follow its name; undefined where nothing is. They are seconds, whole or
 * not (RFC 7519 section 2); none of them must be there.
 */
export function refuseTimes(
  { exp, nbf, iat }: JsonObject,
  nowMs: number,
  leewayMs: number,
): string | undefined {
  for (const [name, time] of Object.entries({ exp, nbf, iat })) {
    if (time !== undefined && !isTime(time)) return `has an ${name} that is no number`
  }
  if (isTime(exp) && nowMs >= exp * 1000 + leewayMs) return 'expired'
  if (isTime(nbf) && nowMs < nbf * 1000 - leewayMs) return 'is not valid yet'
  if (isTime(iat) && nowMs < iat * 1000 - Math.max(leewayMs, MOST_AHEAD_MS)) {
    return 'has an iat in the future; set the clock of the client'
  }
  return undefined
}

/** Does a header ask for nothing that is not understood here (RFC 7515 section 4.1.11, RFC 7797), and call the JWT nothing but `JWT` or `type`? */
export function isPlainHeader({ typ, crit, b64, kid }: JsonObject, type: string): boolean {
  if (crit !== undefined || b64 !== undefined) return false
  if (kid !== undefined && typeof kid !== 'string') return false
  if (typ === undefined) return true
  if (typeof typ !== 'string') return false
  // RFC 7515 section 4.1.9: media types, without regard to case, `application/` mostly left out.
  const short = typ.toLowerCase().replace(/^application\//, '')
  return short === 'jwt' || short === type
}
