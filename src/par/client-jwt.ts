import {
  extensionCause,
  malformedCause,
  mismatch,
  shown,
  signatureCause,
} from '../authenticate/jose/cause.ts'
import { hasAudience, timeFault, timesOf, typeOf } from '../authenticate/token/claims.ts'
import type { Keys } from '../authenticate/token/jwks.ts'
import { needsExtension, parseJws, SCHEMES } from '../authenticate/jose/jws.ts'
import { lacksKey } from '../authenticate/jose/key-set.ts'
import { badRequest, Refusal, serviceUnavailable } from '../errors.ts'
import { asList, type JsonObject, parseObject } from '../runtime/json.ts'
import { type ParClient, type ParRules, signingOf } from './clients.ts'
import { invalidRequest, refuseParameters } from './form.ts'

type ClientJwt = NonNullable<ReturnType<typeof parseJwt>>

/** Parses a JWT of a client, which is not verified. */
export function parseJwt(text: string) {
  const jws = parseJws(text)
  const claims = parseObject(jws?.payload)
  return jws && claims && { ...jws, claims }
}

/** A fault of a JWT: a phrase after its name, and the cause for the log. */
interface Fault {
  readonly phrase: string
  readonly cause: string
}
/** A fault, or a refusal that does not depend on the JWT's name; undefined for a valid JWT. */
type JwtFault = Fault | Refusal | undefined

const faulty = (phrase: string, cause: string): Fault => ({ phrase, cause })

/** Maximum `iat` ahead of this clock: clients' clocks are fast (FAPI 2 section 5.3.2.1). */
const MAX_AHEAD_MS = 60_000

/**
 * Returns the fault of a client assertion (RFC 7523 section 3). Only the backend checks single use:
 * it may never have received the first copy.
 */
export async function assertionFault(
  text: string,
  assertion: ClientJwt | undefined,
  clientId: string,
  keys: Keys,
  rules: ParRules,
): Promise<JwtFault> {
  if (assertion === undefined) return faulty('is not a signed JWT.', malformedCause(text))
  const fault = await signatureFault(assertion, 'client-authentication+jwt', keys)
  if (fault !== undefined) return fault
  const { iss, sub, aud, exp, jti } = assertion.claims
  if (iss !== clientId || sub !== clientId) {
    const [name, value] = iss === clientId ? ['sub', sub] : ['iss', iss]
    return faulty('must have the client_id as iss and sub.', mismatch(name, value, [clientId], 'assertion'))
  }
  const strict = rules.assertionAudience === 'strict'
  if (strict && asList(aud).length > 1)
    return faulty(
      `must have no audience but ${rules.issuer}`,
      mismatch('aud', aud, [rules.issuer], 'assertion'),
    )
  if (exp === undefined) return faulty('must have an exp.', timesOf(assertion.claims))
  if (typeof jti !== 'string' || jti === '')
    return faulty('must have a jti, which is a string.', mismatch('jti', jti, ['a text'], 'assertion'))
  return claimsFault(assertion.claims, rules, strict ? [] : rules.audiences)
}

/** EdDSA with Ed25519, the only curve here, has a second name (RFC 9864 section 2.2). */
const canonicalAlgorithm = (alg: unknown): unknown => (alg === 'Ed25519' ? 'EdDSA' : alg)

/** RFC 7516 section 7.1; the encrypted key and the ciphertext may be empty. */
const ENCRYPTED = /^[\w-]+(?:\.[\w-]*){4}$/

/**
 * Checks the request object (RFC 9101 section 6, OpenID Connect Core section 6) of a listed client,
 * which may have to send one.
 */
export async function refuseRequestObject(client: ParClient, rules: ParRules, text?: string) {
  const required = signingOf(client)
  if (text === undefined) {
    if (required === undefined) return undefined
    return invalidRequest(`This client must send a request object signed with ${required}.`)
  }
  const fault = await objectFault(text, client, rules, required)
  if (fault === undefined || fault instanceof Refusal) return fault
  const { phrase, cause } = fault
  return badRequest(`The request object ${phrase}`, { oauthError: 'invalid_request_object', cause })
}

async function objectFault(text: string, client: ParClient, rules: ParRules, required?: string) {
  // Only the identity backend can decrypt it.
  if (required === undefined && ENCRYPTED.test(text)) return undefined
  // An unsigned JWT (RFC 7519 section 6) has the algorithm none and an empty signature: use
  // `AA`.
  const unsigned = text.endsWith('.')
  const object = parseJwt(unsigned ? `${text}AA` : text)
  const alg = object?.header['alg']
  if (required && canonicalAlgorithm(alg) !== canonicalAlgorithm(required))
    return faulty(
      `must be signed with ${required} and not encrypted.`,
      object ? mismatch('alg', alg, [required], 'object') : malformedCause(text),
    )
  if (!object) return faulty('is not a JWT.', malformedCause(text))
  if (typeof alg !== 'string' || (alg === 'none') !== unsigned)
    return faulty('is not a JWT.', `alg: ${shown(alg)}; ${unsigned ? 'no' : 'with a'} signature`)
  // Only the identity backend, which knows the secret, can verify a MAC.
  const keys = /^(?:none$|HS\d)/.test(alg) ? undefined : client.keys
  const fault = await signatureFault(object, 'oauth-authz-req+jwt', keys)
  if (fault !== undefined) return fault

  const { claims } = object
  const { iss, aud, client_id: clientId = client.id } = claims
  // RFC 9101 section 4.
  const nested = ['request', 'request_uri'].find((name) => name in claims)
  if (nested !== undefined) return faulty('must not hold request or request_uri.', `of the object: ${nested}`)
  if ((required || iss !== undefined) && iss !== client.id)
    return faulty('must have the client_id as iss.', mismatch('iss', iss, [client.id], 'object'))
  if (clientId !== client.id)
    return faulty(
      'has another client_id than the request.',
      mismatch('client_id', clientId, [client.id], 'object'),
    )
  // An optional `aud` that is missing passes.
  const addressed = required !== undefined || aud !== undefined
  return (
    claimsFault(addressed ? claims : { ...claims, aud: rules.issuer }, rules) ??
    refuseParameters((name) => claims[name], 'request object')
  )
}

/**
 * Checks the header, whose `typ` may be `type` or JWT, and, if there are `keys`, the signature, by
 * the key's algorithm. Reads keys again if none fits; a 503 if none could be read.
 */
async function signatureFault(jwt: ClientJwt, type: string, keys?: Keys): Promise<JwtFault> {
  const { alg } = jwt.header
  const types = ['jwt', 'jose', type]
  const isExtended = needsExtension(jwt.header)
  if (isExtended || !types.includes(typeOf(jwt.header)))
    return faulty(
      `must have a header with typ JWT or ${type}, a string as kid, if any, and no crit.`,
      isExtended ? extensionCause(jwt.header) : mismatch('typ', jwt.header['typ'], types, 'header'),
    )
  if (keys === undefined) return undefined
  if (typeof alg !== 'string' || !SCHEMES.has(alg))
    return faulty(
      'is signed with an algorithm that is not accepted; use one such as PS256 or ES256.',
      mismatch('alg', alg, [...SCHEMES.keys()], 'header'),
    )
  const current = keys.current()
  if (current?.verifies(jwt)) return undefined
  const fresh = await keys.refresh()
  if (fresh?.verifies(jwt)) return undefined
  const set = fresh ?? current
  const isUnknown = set !== undefined && lacksKey(set, jwt)
  if (set === undefined || (isUnknown && keys.isStale()))
    return serviceUnavailable('The keys of this client cannot be read now.', 'the last read failed')
  const cause = signatureCause(set, jwt)
  if (isUnknown) return faulty('names a kid that no key of this client has.', cause)
  return faulty('has a signature that is not by a key of this client.', cause)
}

function claimsFault(claims: JsonObject, rules: ParRules, others: readonly string[] = []) {
  const { aud } = claims
  const audiences = [rules.issuer, ...others]
  if (!hasAudience(aud, audiences))
    return faulty(
      `is for another audience; send the aud ${rules.issuer}`,
      mismatch('aud', aud, audiences, 'JWT'),
    )
  const fault = timeFault(claims, rules.leewayMs, Math.max(rules.leewayMs, MAX_AHEAD_MS))
  return fault && faulty(`${fault}.`, timesOf(claims))
}
