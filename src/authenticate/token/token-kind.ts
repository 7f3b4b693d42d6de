import type { JsonObject } from '../../runtime/json.ts'

/** The claim of logout tokens and security events (RFC 8417 section 2.2). */
const EVENTS = ['events']
/** The claims of `EVENTS`, and those of ID tokens (OpenID Connect Core section 3.3.2.11) other than `nonce`. */
const MARKS = [...EVENTS, 'at_hash', 'c_hash', 's_hash']
/** With the members of an authorisation response as a JWT (JARM section 2.1), which has no `sub`. */
const MARKS_WITHOUT_USER = [...MARKS, 'code', 'error', 'response', 'access_token', 'id_token']

/** Values of `token_use`: Cognito has `access` or `id`, Hydra `access_token` or `refresh_token`. */
const ACCESS = /^access(?:_token)?$/i
/** The claim `typ` of Keycloak's access tokens. Its ID tokens have `ID`. */
const KEYCLOAK_ACCESS = /^(?:Bearer|DPoP)$/i
/**
 * Claims in which an issuer names the kind of a token: `typ` of Keycloak (`ID`, `Refresh`,
 * `Offline`, `Logout`), `tokenName` of ForgeRock, `token_type` and `type` of others.
 */
export const KIND_CLAIMS = ['typ', 'token_type', 'type', 'tokenName']
const OTHER_KIND = /^(?:id|refresh|offline|logout)(?:[-_+ ]?(?:token|jwt))*$/i

const matches = (pattern: RegExp, value: unknown): boolean => typeof value === 'string' && pattern.test(value)

/**
 * Returns why a token is not an access token, for the log; undefined if it may be one.
 * `typ` is the media type in its header: only tokens without a specific one are checked for claims
 * that other kinds have. Values of such claims may be secret.
 */
export function otherKind(typ: string, claims: JsonObject): string | undefined {
  const use = claims['token_use']
  if (use !== undefined && !matches(ACCESS, use)) return `accepted token_use: access; ${ofToken(use)}`
  const kind = KIND_CLAIMS.find((name) => matches(OTHER_KIND, claims[name]))
  if (kind !== undefined) return `the claim ${kind} names another kind; ${ofToken(claims[kind])}`
  const mark = typ === 'at+jwt' ? EVENTS.find((name) => name in claims) : otherKindClaim(claims)
  return mark && `the token has the claim ${mark}, as other kinds of token do`
}

const ofToken = (value: unknown): string => `of the token: ${JSON.stringify(value)}`

/** Returns the name of a claim that access tokens do not have. */
function otherKindClaim(claims: JsonObject): string | undefined {
  // Keycloak before 25 copies the nonce of the authorisation request into access tokens.
  if ('nonce' in claims && !matches(KEYCLOAK_ACCESS, claims['typ'])) return 'nonce'
  const names = 'sub' in claims ? MARKS : MARKS_WITHOUT_USER
  return names.find((name) => name in claims)
}

/** Returns true if an introspection response says that the token is an access token. */
export const saysAccess = ({ token_type: type, token_use: use, typ }: JsonObject): boolean =>
  type !== undefined || matches(ACCESS, use) || matches(KEYCLOAK_ACCESS, typ)
