import type { Keys } from '../authenticate/token/jwks.ts'
import { badRequest, type Refusal } from '../errors.ts'
import {
  claimsFault,
  type ClientJwt,
  headerFault,
  type JwtRules,
  parseJwt,
  refuseSignature,
} from './client-jwt.ts'
import { refuseParameters } from './form.ts'

/** The client of a request object, and what it must use. */
export interface RequestObjectClient {
  readonly id: string
  /** An algorithm; undefined and `none` require nothing. */
  readonly requestObjectSigningAlg?: string | undefined
  readonly keys?: Keys | undefined
}

/** RFC 7516 section 7.1; the encrypted key and the ciphertext may be empty. */
const ENCRYPTED = /^[\w-]+(?:\.[\w-]*){4}$/

/** The algorithm that a client must sign its request objects with; undefined where it need not. */
export function requiredAlg({ requestObjectSigningAlg: alg }: RequestObjectClient): string | undefined {
  return alg === 'none' ? undefined : alg
}

/** Checks a request object (RFC 9101 section 6, OpenID Connect Core section 6) of a listed client. */
export async function refuseRequestObject(
  text: string,
  client: RequestObjectClient,
  rules: JwtRules,
): Promise<Refusal | undefined> {
  const required = requiredAlg(client)
  // Only the identity backend can decrypt it.
  if (ENCRYPTED.test(text)) return required === undefined ? undefined : invalidObject(notSignedBy(required))
  const object = parseObjectJwt(text)
  if (object === undefined) return invalidObject('is no JWT.')
  const fault = headerFault(object.header, 'oauth-authz-req+jwt') ?? algFault(object, required)
  if (fault !== undefined) return invalidObject(fault)
  // MACs are left to the identity backend, which knows the secret.
  const { keys } = client
  if (keys !== undefined && !/^(?:none$|HS\d)/.test(object.header['alg'] as string)) {
    const refused = await refuseSignature(object, keys, invalidObject)
    if (refused !== undefined) return refused
  }
  const bad = objectFault(object, client, rules)
  if (bad !== undefined) return invalidObject(bad)
  return refuseParameters((name) => object.claims[name], 'request object')
}

/** 400 `invalid_request_object` (RFC 9101 section 6). */
function invalidObject(fault: string): Refusal {
  return badRequest(`The request object ${fault}`, { oauthError: 'invalid_request_object' })
}

const notSignedBy = (alg: string): string => `must be signed with ${alg} and not encrypted.`

/** Parses a JWT, signed or not: an unsigned one (RFC 7519 section 6) has an empty signature and the algorithm `none`. */
function parseObjectJwt(text: string): ClientJwt | undefined {
  const unsigned = text.endsWith('.')
  const object = parseJwt(unsigned ? `${text}AA` : text)
  return (object?.header['alg'] === 'none') === unsigned ? object : undefined
}

function algFault({ header: { alg } }: ClientJwt, required: string | undefined): string | undefined {
  if (required !== undefined && alg !== required) return notSignedBy(required)
  return typeof alg === 'string' ? undefined : 'names no algorithm.'
}

function objectFault(
  { claims }: ClientJwt,
  client: RequestObjectClient,
  rules: JwtRules,
): string | undefined {
  const { iss, aud, client_id: clientId } = claims
  // RFC 9101 section 4.
  for (const name of ['request', 'request_uri']) if (name in claims) return `must not hold ${name}.`
  const must = requiredAlg(client) !== undefined
  if ((must || iss !== undefined) && iss !== client.id) return 'must have the client_id as iss.'
  const fault = claimsFault(must || aud !== undefined ? claims : { ...claims, aud: rules.issuer }, rules)
  if (fault !== undefined) return fault
  return clientId === undefined || clientId === client.id
    ? undefined
    : 'has another client_id than the request.'
}
