import { type Confirmation, readConfirmation } from '../proof/confirmation.ts'
import { type Fault, invalidToken } from './challenge.ts'
import type { JsonObject } from './jws.ts'

/** Who an access token speaks for. */
export interface Identity {
  /** The OAuth API client, by its id; where several issuers are trusted, as `createNames` names it, and so the user. */
  readonly client: string
  /** The token's `sub`; for a token without a user, issuers put the client there. */
  readonly user?: string
  /** Space-separated scopes. */
  readonly scope?: string
  /** What its sender must hold; absent from a mere bearer token. */
  readonly confirmation?: Confirmation
  /** Unix milliseconds. */
  readonly expiresAt: number
}

/** What a token must say. */
export interface TokenRules {
  /** Compared exactly with `iss`. */
  readonly issuer: string
  /** One of the token's must be one of these. */
  readonly audience: readonly string[]
  /** The claim that names the client. */
  readonly clientClaim: string
  /** How far clocks may differ, on `exp`, `nbf` and `iat`. */
  readonly leewayMs: number
  /** `strict` takes only `at+jwt` (RFC 9068 section 4); `any` an unnamed type, too. */
  readonly type: 'any' | 'strict'
}

/** Claims of ID tokens (OpenID Connect Core sections 2 and 3.3.2.11). */
const OF_ID_TOKENS = ['nonce', 'at_hash', 'c_hash', 's_hash']
export const NOT_ACCESS = invalidToken('The token is not an access token.')

/** The media type in `typ`, in lower case and without `application/` (RFC 7515 section 4.1.9); `jwt` where there is none. */
export function typeOf({ typ = 'jwt' }: JsonObject): string {
  return typeof typ === 'string' ? typ.toLowerCase().replace(/^application\//, '') : ''
}

/** True if a header needs an extension (RFC 7515 section 4.1.11, RFC 7797), or has a `kid` that is no text. */
export function needsExtension(header: JsonObject): boolean {
  const { kid } = header
  if (kid !== undefined && typeof kid !== 'string') return true
  return 'crit' in header || 'b64' in header || 'zip' in header
}

/** Reads the claims of a token whose signature is good (RFC 9068 section 4, RFC 7519 section 4.1). */
export function readClaims(
  header: JsonObject,
  claims: JsonObject,
  rules: TokenRules,
  nowMs: number,
): Identity | Fault {
  const { iss, aud, exp, sub, scope } = claims
  const client = claims[rules.clientClaim]
  if (iss !== rules.issuer)
    return invalidToken('The access token is not from the issuer that is trusted here.')
  if (!hasAudience(aud, rules.audience)) return invalidToken('The access token is for another audience.')
  if (exp === undefined) return invalidToken('The access token does not say when it expires.')
  const fault = timeFault(claims, nowMs, rules.leewayMs)
  if (fault !== undefined) return invalidToken(`The access token ${fault}.`)
  const confirmation = 'cnf' in claims ? readConfirmation(claims['cnf']) : undefined
  if ('cnf' in claims && confirmation === undefined) {
    return invalidToken('The access token is bound to its client in a way that cannot be checked here.')
  }
  if ('events' in claims) return NOT_ACCESS
  if (typeOf(header) !== 'at+jwt' && OF_ID_TOKENS.some((name) => name in claims)) return NOT_ACCESS
  if (!isClientId(client)) return invalidToken('The access token does not name a client.')
  if (sub !== undefined && !isName(sub)) return invalidToken('The access token is malformed.')
  return {
    client,
    ...(sub !== undefined && { user: sub }),
    ...(typeof scope === 'string' && { scope }),
    ...(confirmation !== undefined && { confirmation }),
    expiresAt: (exp as number) * 1000,
  }
}

/** True if one of the audiences in `aud`, a text or a list, is accepted. */
export function hasAudience(aud: unknown, accepted: readonly string[]): boolean {
  return Array.isArray(aud) ? aud.some((one) => accepted.includes(one)) : accepted.includes(aud as string)
}

/**
 * What is wrong with the times of a JWT, as a phrase that follows its name. They are seconds, whole or not (RFC 7519
 * section 2), and all optional. `aheadMs`: how far ahead the clock behind `iat` may be.
 */
export function timeFault(
  { exp, nbf, iat }: JsonObject,
  nowMs: number,
  leewayMs: number,
  aheadMs = leewayMs,
): string | undefined {
  if (!isTime(exp)) return 'has an exp that is no number'
  if (!isTime(nbf)) return 'has an nbf that is no number'
  if (!isTime(iat)) return 'has an iat that is no number'
  if (exp !== undefined && nowMs >= exp * 1000 + leewayMs) return 'expired'
  if (nbf !== undefined && nowMs < nbf * 1000 - leewayMs) return 'is not valid yet'
  return iat !== undefined && nowMs < iat * 1000 - aheadMs ? 'has an iat in the future' : undefined
}

function isTime(value: unknown): value is number | undefined {
  return value === undefined || Number.isFinite(value)
}

const UNSOUND = /[\p{Surrogate}\p{Cc}]/u
const CLIENT_ID = /^.{1,255}$/su

/** True if it is a name of 1 to 255 characters. */
export function isClientId(value: unknown): value is string {
  return isName(value) && CLIENT_ID.test(value)
}

/** True if it is a text without control characters and lone surrogates, which would be the same in UTF-8. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !UNSOUND.test(value)
}

/** About how many bytes it takes to remember an identity. */
export function sizeOf({ client, user, scope }: Identity): number {
  return 384 + 2 * (client.length + (user?.length ?? 0) + (scope?.length ?? 0))
}
