import type { Refusal } from '../../errors.ts'
import { isClientId, isName, isTime } from './claims.ts'
import { type Confirmation, readConfirmation } from '../proof/confirmation.ts'
import type { JsonObject } from './jws.ts'

/** Who an access token speaks for. */
export interface Identity {
  /** The OAuth API client, by its id; where several issuers are trusted, as `createNames` names it, and so the user. */
  readonly client: string
  /** The token's `sub`; for a token without a user, issuers put the client there. */
  readonly user?: string
  /** Space-separated scopes. */
  readonly scope?: string
  /** What its sender must hold; the token of a mere bearer has none. */
  readonly confirmation?: Confirmation
  /** Unix time in milliseconds. */
  readonly expiresAt: number
}

/** What is known of a token alone, whoever sent it; a string says, for the caller, what is wrong with it. */
export type Finding = Identity | string | Refusal

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
  /** `strict` takes only what calls itself an access token (RFC 9068 section 4); `any` what does not call itself something else, too. */
  readonly type: 'any' | 'strict'
}

const ACCESS_TOKEN = /^(?:application\/)?at\+jwt$/i
const UNNAMED = /^(?:application\/)?jwt$/i
/** Claims of ID tokens (OpenID Connect Core sections 2 and 3.3.2.11). */
const OF_ID_TOKENS = ['nonce', 'at_hash', 'c_hash', 's_hash']

/** Why a header cannot be that of an access token, in words for the caller; undefined where it can. */
export function refuseHeader(header: JsonObject, type: TokenRules['type']): string | undefined {
  const { typ, kid } = header
  // RFC 7515 section 4.1.11: no extension is understood here, that of RFC 7797 neither.
  if ('crit' in header || 'b64' in header || 'zip' in header)
    return 'The access token needs an extension that is not supported.'
  if (kid !== undefined && typeof kid !== 'string') return 'The access token is malformed.'
  if (saysAccessToken(header)) return undefined
  if (type === 'any' && (typ === undefined || (typeof typ === 'string' && UNNAMED.test(typ))))
    return undefined
  return 'The token is not an access token.'
}

function saysAccessToken({ typ }: JsonObject): boolean {
  return typeof typ === 'string' && ACCESS_TOKEN.test(typ)
}

/** Reads the claims of a token whose signature is good (RFC 9068 section 4, RFC 7519 section 4.1); a string says, for the caller, what is wrong. */
export function readClaims(
  header: JsonObject,
  claims: JsonObject,
  rules: TokenRules,
  nowMs: number,
): Identity | string {
  const { iss, aud, exp, nbf, iat, sub, scope } = claims
  const client = claims[rules.clientClaim]
  if (iss !== rules.issuer) return 'The access token is not from the issuer that is trusted here.'
  const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud]
  if (!audiences.some((one) => rules.audience.includes(one as string))) {
    return 'The access token is for another audience.'
  }
  if (!isTime(exp)) return 'The access token does not say when it expires.'
  if ((nbf !== undefined && !isTime(nbf)) || (iat !== undefined && !isTime(iat))) {
    return 'The access token is malformed.'
  }
  if (nowMs >= exp * 1000 + rules.leewayMs) return 'The access token expired.'
  if (nbf !== undefined && nowMs < nbf * 1000 - rules.leewayMs) return 'The access token is not valid yet.'
  if (iat !== undefined && nowMs < iat * 1000 - rules.leewayMs) {
    return 'The access token was issued in the future.'
  }
  const confirmation = 'cnf' in claims ? readConfirmation(claims['cnf']) : undefined
  if ('cnf' in claims && confirmation === undefined) {
    return 'The access token is bound to its client in a way that cannot be checked here.'
  }
  if ('events' in claims || (!saysAccessToken(header) && OF_ID_TOKENS.some((name) => name in claims))) {
    return 'The token is not an access token.'
  }
  if (!isClientId(client)) return 'The access token does not name a client.'
  if (sub !== undefined && !isName(sub)) return 'The access token is malformed.'
  return {
    client,
    ...(sub !== undefined && { user: sub }),
    ...(typeof scope === 'string' && { scope }),
    ...(confirmation !== undefined && { confirmation }),
    expiresAt: exp * 1000,
  }
}

/** About how many bytes it takes to remember an identity. */
export function sizeOf({ client, user, scope }: Identity): number {
  return 384 + 2 * (client.length + (user?.length ?? 0) + (scope?.length ?? 0))
}
