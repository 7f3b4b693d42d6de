import { isUtf8 } from 'node:buffer'
import { hasAudience, isName, needsExtension, timeFault, typeOf } from '../authenticate/token/claims.ts'
import type { Keys } from '../authenticate/token/jwks.ts'
import { type JsonObject, type Jws, parseJws, parseObject, SCHEMES } from '../authenticate/token/jws.ts'
import { Refusal, serviceUnavailable } from '../errors.ts'
import { decodeComponent, type Form, invalidRequest } from './form.ts'

/** Who a request says it is from, and how it authenticates. None of it is verified. */
export type Credentials = Exclude<ReturnType<typeof readCredentials>, Refusal>

const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
const BASIC = /^basic +([A-Za-z0-9+/]+={0,2})$/i

/** Reads the client and its one method of authentication (RFC 6749 section 2.3); a refusal where there are none or several. */
export function readCredentials(form: Form, authorization: readonly string[]) {
  const [header, ...more] = authorization
  const assertionText = form.get('client_assertion')
  const used = [header, form.get('client_secret'), assertionText].filter((one) => one !== undefined)
  if (used.length + more.length > 1) {
    return invalidRequest('Authenticate in one way: Authorization, client_secret or client_assertion.')
  }
  // RFC 7521 section 4.2: both or neither.
  const type = form.get('client_assertion_type')
  if (type !== (assertionText && ASSERTION_TYPE)) {
    return invalidRequest(`Send a client_assertion and client_assertion_type=${ASSERTION_TYPE}, or neither.`)
  }
  const assertion = assertionText === undefined ? undefined : parseJwt(assertionText)
  const sub = assertion?.claims['sub']
  const basic = header === undefined ? undefined : readBasic(header)
  /** The client that the method itself names; undefined for `none`, and for an assertion without a readable `sub`. */
  const proved = basic ?? (isName(sub) ? sub : undefined)
  if (header !== undefined && basic === undefined) {
    return invalidRequest('The Authorization header is malformed; send Basic with form-encoded credentials.')
  }
  const named = form.get('client_id')
  if (named !== undefined && proved !== undefined && named !== proved) {
    return invalidRequest('The client_id is not the client of the Authorization header or client_assertion.')
  }
  const clientId = named ?? proved
  if (clientId === undefined) return invalidRequest('The client_id is missing.')
  /** `none` may still be a TLS certificate. */
  const method = used.length === 0 ? 'none' : assertionText === undefined ? 'secret' : 'assertion'
  return { clientId, proved, method, assertion }
}

/** The client of a Basic header, whose halves are form-encoded (RFC 6749 section 2.3.1). */
function readBasic(header: string): string | undefined {
  const bytes = Buffer.from(BASIC.exec(header)?.[1] ?? '', 'base64')
  const text = isUtf8(bytes) ? bytes.toString() : ''
  const colon = text.indexOf(':')
  if (colon === -1 || decodeComponent(text.slice(colon + 1)) === undefined) return undefined
  return decodeComponent(text.slice(0, colon)) || undefined
}

/**
 * What is wrong with a client assertion (RFC 7523 section 3) of a client with known keys. Single use of the jti is left to the
 * identity backend: a client may send an assertion again that the backend never saw.
 */
export async function assertionFault({ assertion, clientId }: Credentials, keys: Keys, rules: JwtRules) {
  if (assertion === undefined) return 'is no signed JWT.'
  const fault = await signatureFault(assertion, 'client-authentication+jwt', keys)
  if (fault !== undefined) return fault
  const { iss, sub, aud, exp, jti } = assertion.claims
  if (iss !== clientId || sub !== clientId) return 'must have the client_id as iss and sub.'
  const strict = rules.assertionAudience === 'strict'
  if (strict && Array.isArray(aud) && aud.length > 1) return `must have no audience but ${rules.issuer}`
  if (exp === undefined) return 'must have an exp.'
  if (typeof jti !== 'string' || jti === '') return 'must have a jti, which is a text.'
  return claimsFault(assertion.claims, rules, strict ? [] : rules.audiences)
}

/** 401 `invalid_client`, with a challenge of `realm` for a client that used the Authorization header (RFC 6749 section 5.2). */
export function invalidClient(description: string, realm?: string): Refusal {
  const quoted = realm?.replaceAll(/[^ !#-[\]-~]/g, '')
  return new Refusal('Unauthorized', description, {
    oauthError: 'invalid_client',
    headers: quoted === undefined ? {} : { 'WWW-Authenticate': `Basic realm="${quoted}"` },
  })
}

/** A JWT of a client, not verified. */
interface ClientJwt {
  readonly jws: Jws
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
  return jws && claims && { jws, header: jws.header, claims }
}

/**
 * Checks the header, whose `typ` may be `type` or JWT, and, where `keys` are given, the signature. The key's type, not the JWT,
 * decides what may verify it. Keys that do not fit are read again first, at most once a cool-down; 503 where none could be read so far.
 */
export async function signatureFault(jwt: ClientJwt, type: string, keys: Keys | undefined) {
  const { alg, kid } = jwt.header
  if (needsExtension(jwt.header) || !['jwt', type].includes(typeOf(jwt.header))) {
    return `has a header that is not accepted: its typ may be JWT or ${type}, its kid a text, and it may have no crit.`
  }
  if (keys === undefined) return undefined
  if (typeof alg !== 'string' || !SCHEMES.has(alg)) {
    return 'is signed with an algorithm that is not accepted; use one such as PS256 or ES256.'
  }
  const known = keys.current()
  if (known?.verifies(jwt.jws, kid)) return undefined
  const fresh = await keys.refresh()
  if (fresh?.verifies(jwt.jws, kid)) return undefined
  if ((fresh ?? known) !== undefined) return 'has a signature that is not by a key of this client.'
  return serviceUnavailable(
    'The keys of this client cannot be read for now. Try again.',
    'the keys of the client could not be read so far',
  )
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
  const fault = timeFault(claims, leewayMs, aheadMs)
  return fault && `${fault}.`
}
