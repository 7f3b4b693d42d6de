import { type Confirmation, readConfirmation } from '../proof/confirmation.ts'
import { type CredentialsError, invalidToken, unverifiable } from './challenge.ts'
import type { Introspect } from './introspection.ts'
import type { Keys } from './jwks.ts'
import type { JsonObject, Jws } from './jws.ts'
import type { KeySet } from './key-set.ts'

/** Who an access token speaks for. */
export interface Identity {
  /** The OAuth API client, by its id; where several issuers are trusted, as `createNames` names it, and so the user. */
  readonly client: string
  /** The token's `sub`; for a token without a user, issuers put the client there. */
  readonly user?: string | undefined
  /** Space-separated scopes. */
  readonly scope?: string | undefined
  /** What its sender must hold; absent from a mere bearer token. */
  readonly confirmation?: Confirmation | undefined
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

/** Verifies a JWT access token of an issuer (RFC 9068 section 4). A promise only where keys must be fetched first; it never rejects. */
export function verifyJwt(issuer: TrustedIssuer, jws: Jws, claims: JsonObject) {
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
): VerifiedToken | CredentialsError {
  if (set === undefined) return unverifiable('the keys of the issuer could not be read so far')
  if (!signed) return invalidToken('The signature of the access token is not valid.')
  const identity = readClaims(jws.header, claims, issuer)
  if ('error' in identity) return withClient(identity, claims[issuer.clientClaim])
  return { identity, until: (claims['exp'] as number) * 1000, keys: issuer.keys, set }
}

/** Notes whose token is at fault; only for what the issuer has said of it. */
export function withClient(fault: CredentialsError, client: unknown): CredentialsError {
  return isClientId(client) ? { ...fault, client } : fault
}

/** Reads the claims of a token whose signature is good (RFC 9068 section 4, RFC 7519 section 4.1). */
export function readClaims(
  header: JsonObject,
  claims: JsonObject,
  rules: TokenRules,
): Identity | CredentialsError {
  const { iss, aud, exp, sub, scope } = claims
  const client = claims[rules.clientClaim]
  if (iss !== rules.issuer)
    return invalidToken('The access token is not from the issuer that is trusted here.')
  if (!hasAudience(aud, rules.audience)) return invalidToken('The access token is for another audience.')
  if (exp === undefined) return invalidToken('The access token does not say when it expires.')
  const fault = timeFault(claims, rules.leewayMs)
  if (fault !== undefined) return invalidToken(`The access token ${fault}.`, timesOf(claims, rules.leewayMs))
  const confirmation = 'cnf' in claims ? readConfirmation(claims['cnf']) : undefined
  if ('cnf' in claims && confirmation === undefined) {
    return invalidToken('The access token is bound to its client in a way that cannot be checked here.')
  }
  if ('events' in claims) return NOT_ACCESS
  if (typeOf(header) !== 'at+jwt' && OF_ID_TOKENS.some((name) => name in claims)) return NOT_ACCESS
  if (!isClientId(client)) return invalidToken('The access token does not name a client.')
  if (sub !== undefined && !isName(sub)) return invalidToken('The access token is malformed.')
  return { client, user: sub, scope: typeof scope === 'string' ? scope : undefined, confirmation }
}

/** True if one of the audiences in `aud`, a text or a list, is accepted. */
export function hasAudience(aud: unknown, accepted: readonly string[]): boolean {
  return Array.isArray(aud) ? aud.some((one) => accepted.includes(one)) : accepted.includes(aud as string)
}

/** What is wrong with the times of a JWT (seconds, RFC 7519 section 2, all optional), after its name; `aheadMs` is for `iat`. */
export function timeFault(claims: JsonObject, leewayMs: number, aheadMs = leewayMs): string | undefined {
  const { exp = Number.MAX_VALUE, nbf = 0, iat = 0 } = claims as Readonly<Record<string, number | undefined>>
  if (!(Number.isFinite(exp) && Number.isFinite(nbf) && Number.isFinite(iat))) {
    return 'has an exp, nbf or iat that is no number'
  }
  const nowMs = Date.now()
  if (nowMs >= exp * 1000 + leewayMs) return 'expired'
  if (nowMs < nbf * 1000 - leewayMs) return 'is not valid yet'
  return nowMs < iat * 1000 - aheadMs ? 'has an iat in the future' : undefined
}

/** Returns the times of a JWT as seconds from now, for the log. */
function timesOf(claims: JsonObject, leewayMs: number): string {
  const times = ['iat', 'nbf', 'exp'].flatMap((name) => {
    const seconds = Math.round(Number(claims[name]) - Date.now() / 1000)
    return name in claims ? [`${name} ${Math.abs(seconds)} s ${seconds > 0 ? 'ahead' : 'ago'}`] : []
  })
  return `${times.join(', ')}, by the clock of this gateway; leeway ${leewayMs / 1000} s`
}

const UNSOUND = /[\p{Surrogate}\p{Cc}]/u

/** True if it is a name of 1 to 255 characters. */
export function isClientId(value: unknown): value is string {
  return isName(value) && /^.{1,255}$/su.test(value)
}

/** True if it is a text without control characters and lone surrogates, which would be the same in UTF-8. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !UNSOUND.test(value)
}

/**
 * Names clients and users of several issuers: those of the first by their ids, others as `id@issuer`. So is an id of the first
 * that ends as if it were another's: what follows the last `@` of a name is the issuer, or the name is an id of the first.
 */
export function createQualifier(issuers: readonly string[]): (id: string, issuer?: string) => string {
  const [first, ...others] = issuers
  if (others.length === 0) return (id) => id
  const marks = new Map(
    issuers.map((issuer) => [issuer, `@${issuer.replaceAll('%', '%25').replaceAll('@', '%40')}`]),
  )
  const isMarked = (id: string): boolean =>
    id.includes('@') && [...marks.values()].some((mark) => id.endsWith(mark))
  return (id, issuer = first!) => (issuer === first && !isMarked(id) ? id : `${id}${marks.get(issuer)}`)
}
