import type { Keys } from '../authenticate/token/jwks.ts'
import { type JsonObject, SCHEMES } from '../authenticate/token/jws.ts'
import type { Refusal } from '../errors.ts'
import { isSignedBy, keysUnavailable } from './client-keys.ts'
import { isPlainHeader, type Jwt, readJwt, refuseTimes } from './jwt.ts'
import { refuseParameters } from './parameters.ts'
import { invalidRequestObject } from './refusal.ts'

/** The client whose request object it is, and what it must use. */
export interface RequestObjectClient {
  readonly id: string
  /** An algorithm, or `none` for whatever the client likes; undefined does not ask for anything either. */
  readonly requestObjectSigningAlg?: string | undefined
  readonly keys?: Keys | undefined
}

export interface RequestObjectRules {
  /** For whom request objects are. */
  readonly issuer: string
  readonly leewayMs: number
  /** The clock, in Unix milliseconds. */
  readonly now: () => number
}

/** RFC 7516 section 7.1; the encrypted key and the ciphertext may be empty. */
const ENCRYPTED = /^[\w-]+(?:\.[\w-]*){4}$/

/** Must this client send signed request objects? */
export function signsRequests({ requestObjectSigningAlg: alg }: RequestObjectClient): boolean {
  return alg !== undefined && alg !== 'none'
}

/** Checks a request object (RFC 9101 section 6, OpenID Connect Core section 6) of a listed client; undefined where it may pass. */
export async function refuseRequestObject(
  text: string,
  client: RequestObjectClient,
  rules: RequestObjectRules,
): Promise<Refusal | undefined> {
  const { requestObjectSigningAlg: setting } = client
  if (ENCRYPTED.test(text)) {
    // What is inside is known to the identity backend alone.
    return signsRequests(client) ? invalidRequestObject(notSignedWith(setting!)) : undefined
  }
  const object = readObject(text)
  if (object === undefined) return invalidRequestObject('The request object is no JWT.')
  const { header } = object.jws
  if (!isPlainHeader(header, 'oauth-authz-req+jwt')) {
    return invalidRequestObject(
      'The header of the request object may have the typ JWT or oauth-authz-req+jwt, a kid that is a text, and no crit.',
    )
  }
  if (signsRequests(client) && header['alg'] !== setting) {
    return invalidRequestObject(notSignedWith(setting!))
  }
  return (await refuseSignature(object, client)) ?? refuseClaims(object.claims, client, rules)
}

const notSignedWith = (alg: string): string =>
  `This client must send request objects that are signed with ${alg} and not encrypted.`

/** A JWT, signed or not: an unsigned one (RFC 7519 section 6) has an empty signature, and only it says `none`. */
function readObject(text: string): Jwt | undefined {
  const unsigned = text.endsWith('.')
  const object = readJwt(unsigned ? `${text}AA` : text)
  return (object?.jws.header['alg'] === 'none') === unsigned ? object : undefined
}

async function refuseSignature({ jws }: Jwt, { keys }: RequestObjectClient): Promise<Refusal | undefined> {
  const { alg } = jws.header
  if (typeof alg !== 'string') return invalidRequestObject('The request object names no algorithm.')
  // MACs are the identity backend's to check, who shares the secret.
  if (alg === 'none' || /^HS\d/.test(alg) || keys === undefined) return undefined
  if (!SCHEMES.has(alg)) {
    return invalidRequestObject(
      'The request object is signed with an algorithm that is not accepted; use one such as PS256 or ES256.',
    )
  }
  const signed = await isSignedBy(keys, jws, alg)
  if (signed === undefined) return keysUnavailable()
  return signed
    ? undefined
    : invalidRequestObject('The signature of the request object is not by a key of this client.')
}

function refuseClaims(
  claims: JsonObject,
  client: RequestObjectClient,
  { issuer, leewayMs, now }: RequestObjectRules,
): Refusal | undefined {
  const { iss, aud, client_id: clientId } = claims
  // RFC 9101 section 4.
  for (const name of ['request', 'request_uri']) {
    if (name in claims) return invalidRequestObject(`The request object must not hold ${name}.`)
  }
  const must = signsRequests(client)
  if (must ? iss !== client.id : iss !== undefined && iss !== client.id) {
    return invalidRequestObject('The request object must have the client_id as iss.')
  }
  const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud]
  if ((must || aud !== undefined) && !audiences.includes(issuer)) {
    return invalidRequestObject(`The request object is for another audience; send the aud ${issuer}`)
  }
  const fault = refuseTimes(claims, now(), leewayMs)
  if (fault !== undefined) return invalidRequestObject(`The request object ${fault}.`)
  if (clientId !== undefined && clientId !== client.id) {
    return invalidRequestObject('The client_id in the request object is not that of the request.')
  }
  return refuseParameters((name) => claims[name], 'request object')
}
