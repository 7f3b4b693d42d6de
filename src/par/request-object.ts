import { badRequest } from '../errors.ts'
import {
  claimsFault,
  type JwtFault,
  type JwtRules,
  parseJwt,
  signatureFault,
} from './client-authentication.ts'
import type { ParClient } from './client-id.ts'
import { invalidRequest, refuseParameters } from './form.ts'

/** RFC 7516 section 7.1; the encrypted key and the ciphertext may be empty. */
const ENCRYPTED = /^[\w-]+(?:\.[\w-]*){4}$/

/** Checks the request object (RFC 9101 section 6, OpenID Connect Core section 6) of a listed client, which may have to send one. */
export async function refuseRequestObject(text: string | undefined, client: ParClient, rules: JwtRules) {
  const required = signingOf(client)
  if (text === undefined) {
    if (required === undefined) return undefined
    return invalidRequest(`This client must send a request object signed with ${required} as request.`)
  }
  const fault = await objectFault(text, required, client, rules)
  if (typeof fault !== 'string') return fault
  return badRequest(`The request object ${fault}`, { oauthError: 'invalid_request_object' })
}

/** Returns the algorithm that the request objects of a client must be signed with; undefined if they need not be signed. */
export function signingOf({ requestObjectSigningAlg: alg }: ParClient): string | undefined {
  return alg === 'none' ? undefined : alg
}

async function objectFault(
  text: string,
  required: string | undefined,
  { id, keys }: ParClient,
  rules: JwtRules,
): Promise<JwtFault> {
  // Only the identity backend can decrypt it.
  if (required === undefined && ENCRYPTED.test(text)) return undefined
  // An unsigned JWT (RFC 7519 section 6) has an empty signature and the algorithm none.
  const unsigned = text.endsWith('.')
  const object = parseJwt(unsigned ? `${text}AA` : text)
  const alg = object?.header['alg']
  if (required !== undefined && alg !== required) return `must be signed with ${required} and not encrypted.`
  if (object === undefined || typeof alg !== 'string' || (alg === 'none') !== unsigned) return 'is no JWT.'
  // MACs are left to the identity backend, which knows the secret.
  const verifiable = alg !== 'none' && !/^HS\d/.test(alg)
  const fault = await signatureFault(object, 'oauth-authz-req+jwt', verifiable ? keys : undefined)
  if (fault !== undefined) return fault

  const { claims } = object
  const { iss, aud, client_id: clientId } = claims
  // RFC 9101 section 4.
  if ('request' in claims || 'request_uri' in claims) return 'must not hold request or request_uri.'
  if ((required !== undefined || iss !== undefined) && iss !== id) return 'must have the client_id as iss.'
  if (clientId !== undefined && clientId !== id) return 'has another client_id than the request.'
  const addressed = required !== undefined || aud !== undefined
  return (
    claimsFault(addressed ? claims : { ...claims, aud: rules.issuer }, rules) ??
    refuseParameters((name) => claims[name], 'request object')
  )
}
