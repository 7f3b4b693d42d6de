import { asList, isName, isObject, type JsonObject } from '../../runtime/json.ts'
import { extensionCause, mismatch, shown, signatureCause } from '../jose/cause.ts'
import { type CredentialsError, invalidToken } from '../jose/credentials-error.ts'
import { type Jws, needsExtension } from '../jose/jws.ts'
import { type KeySet, lacksKey } from '../jose/key-set.ts'
import type { Keys } from './jwks.ts'
import { type Claims, keptClaims, readPlan, readScope, readUser } from './kept-claims.ts'
import { otherKind } from './token-kind.ts'

/** The client, and the user if any, that an access token identifies. */
export interface Identity {
  /**
   * Id of the OAuth API client; `createQualifier` makes it and the user unique among several
   * issuers.
   */
  readonly client: string
  /** The token's `sub`; in a token without a user, issuers put the client there. */
  readonly user?: string | undefined
  /** Separated by spaces. */
  readonly scope?: string | undefined
  /** Absent from a bearer token. */
  readonly confirmation?: Confirmation | undefined
  /** The text in the claim `planClaim`, if the token has one. */
  readonly plan?: string | undefined
  /** The claims that `TokenRules` names, as `keptClaims` returns them. */
  readonly claims?: Claims | undefined
}

/**
 * Keys that the sender of a token must prove to hold (`cnf`, RFC 7800 section 3); both, if both are
 * set.
 */
export interface Confirmation {
  /** SHA-256 thumbprint of the key of its DPoP proofs (RFC 9449 section 6.1). */
  readonly jkt?: string | undefined
  /** SHA-256 of its TLS client certificate (RFC 8705 section 3.1). */
  readonly x5t?: string | undefined
}

/**
 * An accepted token, valid until `until` (Unix milliseconds) and, if it is a JWT, as long as `keys`
 * still hold the same `set`.
 */
export interface VerifiedToken {
  readonly identity: Identity
  readonly until: number
  readonly keys?: Keys | undefined
  readonly set?: KeySet | undefined
}

export type Verification = VerifiedToken | CredentialsError
export type Verifying = Verification | Promise<Verification>

export function unverifiable(cause: unknown): CredentialsError {
  return { error: 'unavailable', description: 'Access tokens cannot be verified for now.', cause }
}

export interface TokenRules {
  readonly issuer: string
  /** The values of `iss` that are accepted, if the issuer has several names; default: `issuer`. */
  readonly names?: readonly string[] | undefined
  readonly audience: readonly string[]
  /** Accepts tokens without an audience; those for a different one are always refused. */
  readonly audienceOptional?: boolean | undefined
  /** `required` accepts only tokens that are bound to a key or a certificate (FAPI 2.0). */
  readonly bound?: 'required' | undefined
  readonly clientClaim: string
  readonly leewayMs: number
  /** The claim that names the plan of the client. */
  readonly planClaim?: string | undefined
  /** Names of the claims that limits read. */
  readonly keeps?: readonly string[]
}

export interface JwtRules extends TokenRules {
  readonly algorithms: readonly string[]
  /**
   * `strict` accepts only `at+jwt` (RFC 9068 section 4); `any` also tokens without a specific type.
   */
  readonly type: 'any' | 'strict'
  readonly keys: Keys
}

/** Claims in which issuers name the client. */
const CLIENT_CLAIMS = ['client_id', 'azp', 'appid', 'cid']
const NO_EXP = invalidToken(
  'The access token does not say when it expires.',
  'accepted exp: seconds since 1970; of the token: none',
)
const NOT_BOUND: CredentialsError = {
  error: 'invalid_token',
  description: 'The access token must be bound to a key or a certificate.',
  cause: 'accepted cnf: jkt, x5t#S256; of the token: none',
  needed: 'dpop',
}
const UNSUPPORTED = 'The header of the access token has a parameter that is not supported.'
export const UNCHECKABLE = invalidToken('The access token is bound in a way that is not known here.')

const TYPES: Readonly<Record<JwtRules['type'], readonly string[]>> = {
  strict: ['at+jwt'],
  any: ['at+jwt', 'jwt'],
}

/** Returns the media types of tokens that `type` accepts. */
export const acceptedTypes = (type: JwtRules['type']): readonly string[] => TYPES[type]

/**
 * Returns the media type in `typ`, in lower case and without `application/` (RFC 7515 section
 * 4.1.9); `jwt` by default.
 */
export const typeOf = ({ typ = 'jwt' }: JsonObject): string =>
  typeof typ === 'string' ? typ.toLowerCase().replace(/^application\//, '') : ''

/**
 * Verifies a JWT access token (RFC 9068 section 4). Returns a promise, which never rejects, only if
 * keys must be read first.
 */
export function verifyJwt(rules: JwtRules, jws: Jws, claims: JsonObject) {
  const { keys, type, algorithms } = rules
  const { alg } = jws.header
  if (!algorithms.includes(alg as string)) {
    const description = 'The access token is signed with an algorithm that is not accepted.'
    return invalidToken(description, mismatch('alg', alg, algorithms))
  }
  if (needsExtension(jws.header)) return invalidToken(UNSUPPORTED, extensionCause(jws.header))
  const typ = typeOf(jws.header)
  const types = acceptedTypes(type)
  if (!types.includes(typ)) return notAccess(mismatch('typ', jws.header['typ'], types))
  const current = keys.current()
  if (current?.verifies(jws)) return acceptSigned(rules, typ, claims, current)
  // The issuer may have a new key, even under an old kid.
  const reading = keys.refresh()
  if (reading === undefined) return unsigned(keys, jws, current)
  return reading.then((set) =>
    set?.verifies(jws) === true ? acceptSigned(rules, typ, claims, set) : unsigned(keys, jws, set),
  )
}

/** Accepts a token whose signature is by a key of `set`, unless its claims are refused. */
function acceptSigned(rules: JwtRules, typ: string, claims: JsonObject, set: KeySet): Verification {
  const identity = readClaims(typ, claims, rules)
  if ('error' in identity) return identity
  return { identity, until: (claims['exp'] as number) * 1000, keys: rules.keys, set }
}

/** Refuses a token whose signature is by no key of `set`, the keys that could be read. */
function unsigned(keys: Keys, jws: Jws, set: KeySet | undefined): CredentialsError {
  if (set === undefined) return unverifiable('the keys of the issuer could not be read so far')
  const cause = signatureCause(set, jws)
  if (keys.isStale() && lacksKey(set, jws))
    return unverifiable(`the keys of the issuer cannot be read now; ${cause}`)
  return invalidToken('The signature of the access token is not valid.', cause)
}

/**
 * Reads the claims of a token of type `typ` that the issuer vouches for (RFC 9068 section 4, RFC
 * 7519 section 4.1); errors contain the client.
 */
export function readClaims(typ: string, claims: JsonObject, rules: TokenRules) {
  const client = claims[rules.clientClaim]
  const identity = readIdentity(typ, claims, rules)
  return 'error' in identity && isClientId(client) ? { ...identity, client } : identity
}

function readIdentity(typ: string, claims: JsonObject, rules: TokenRules) {
  const { iss, aud, exp, sub, cnf } = claims
  const { issuer, names = [issuer], audience, audienceOptional = false, leewayMs } = rules
  const client = claims[rules.clientClaim]
  if (!names.includes(iss as string))
    return invalidToken('The issuer is not trusted here.', mismatch('iss', iss, names))
  if (!hasAudience(aud, audience) && !(audienceOptional && isWithoutAudience(aud)))
    return invalidToken('The access token is for another audience.', mismatch('aud', aud, audience))
  if (exp === undefined) return NO_EXP
  const fault = timeFault(claims, leewayMs)
  if (fault) return invalidToken(`The access token ${fault}.`, timesOf(claims))
  const confirmation = readConfirmation(cnf)
  if ('cnf' in claims && confirmation === undefined) return { ...UNCHECKABLE, cause: confirmationCause(cnf) }
  if (rules.bound === 'required' && confirmation === undefined) return NOT_BOUND
  const kind = otherKind(typ, claims)
  if (kind !== undefined) return notAccess(kind)
  if (!isClientId(client))
    return invalidToken('The access token does not name a client.', lacksClient(claims, rules))
  const user = readUser(sub)
  if (user === null) return invalidToken('The access token is malformed.', lacksUser(sub))
  const scope = readScope(claims)
  const identity = { client, user, scope, confirmation, claims: keptClaims(claims, rules.keeps) }
  return rules.planClaim === undefined ? identity : { ...identity, plan: readPlan(claims[rules.planClaim]) }
}

/** Returns the cause of a refusal. The user is not named: the log has none. */
const lacksUser = (sub: unknown): string =>
  `accepted sub: a text without control characters, or a whole number; of the token: another ${Array.isArray(sub) ? 'list' : typeof sub}`

/** Returns the claims, other than `clientClaim`, in which a token may name its client. */
export const otherClientClaims = (claims: JsonObject, clientClaim: string): readonly string[] =>
  CLIENT_CLAIMS.filter((name) => name !== clientClaim && isClientId(claims[name]))

/** Returns the cause of a refusal: the claim with the client, and claims that may have it instead. */
function lacksClient(claims: JsonObject, { clientClaim }: TokenRules): string {
  const others = otherClientClaims(claims, clientClaim)
  const hint = others.length === 0 ? '' : `; it has ${others.join(', ')}: set tokens.clientClaim`
  return `accepted ${clientClaim}: 1 to 255 printable characters; of the token: ${shown(claims[clientClaim])}${hint}`
}

/** Refuses a token of another kind. */
export const notAccess = (cause: string): CredentialsError =>
  invalidToken('The token is not an access token.', cause)

const SHA256 = /^[\w-]{43}$/
const THUMBPRINTS = ['jkt', 'x5t#S256']

/** Returns the cause of a refusal. Other members of `cnf` may be keys: only their names are logged. */
function confirmationCause(cnf: unknown): string {
  const names = Object.keys(Object(cnf))
  const areKnown = names.length > 0 && names.every((name) => THUMBPRINTS.includes(name))
  return mismatch('cnf', names, THUMBPRINTS) + (areKnown ? ', with another length than 43' : '')
}

/**
 * Reads a `cnf` claim; returns undefined if it is empty, or contains anything that cannot be
 * checked here.
 */
function readConfirmation(cnf: unknown): Confirmation | undefined {
  const { jkt, 'x5t#S256': x5t, ...others } = isObject(cnf) ? cnf : {}
  const thumbprints = [jkt, x5t].filter((value) => value !== undefined)
  if (Object.keys(others).length > 0 || thumbprints.length === 0) return undefined
  const areValid = thumbprints.every((value) => typeof value === 'string' && SHA256.test(value))
  return areValid ? ({ jkt, x5t } as Confirmation) : undefined
}

export const hasAudience = (aud: unknown, accepted: readonly string[]): boolean =>
  asList(aud).some((audience) => accepted.includes(audience as string))

/** True for no `aud`, null or an empty list; anything else may mean an audience. */
const isWithoutAudience = (aud: unknown): boolean =>
  aud === undefined || aud === null || (Array.isArray(aud) && aud.length === 0)

/**
 * Returns the fault in the times of a JWT (seconds, all optional, RFC 7519 section 2), as a phrase
 * after its name; `aheadMs` is the leeway of `iat`.
 */
export function timeFault(claims: JsonObject, leewayMs: number, aheadMs = leewayMs) {
  const { exp = Number.MAX_VALUE, nbf = 0, iat = 0 } = claims as Record<string, number | undefined>
  if (!(Number.isFinite(exp) && Number.isFinite(nbf) && Number.isFinite(iat)))
    return 'has an exp, nbf or iat that is not a number'
  const nowMs = Date.now()
  if (nowMs >= exp * 1000 + leewayMs) return 'expired'
  if (nowMs < nbf * 1000 - leewayMs) return 'is not valid yet'
  return nowMs < iat * 1000 - aheadMs ? 'has an iat in the future' : undefined
}

/** Returns the times of a token, and that of this gateway, in seconds, for the log. */
export const timesOf = ({ iat, nbf, exp }: JsonObject): string =>
  `times: ${JSON.stringify({ iat, nbf, exp, now: Math.floor(Date.now() / 1000) })}`

export const isClientId = (value: unknown): value is string => isName(value) && value.length <= 255
