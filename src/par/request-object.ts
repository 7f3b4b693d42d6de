import type { Keys } from '../authenticate/token/jwks.ts'
import { badRequest, type Refusal } from '../errors.ts'
import {
  claimsFault,
  type ClientJwt,
  headerFault,
  type JwtRules,
  parseJwt,
  signatureFault,
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
  const encrypted = ENCRYPTED.test(text)
  // Only the identity backend can decrypt it.
  if (encrypted && required === undefined) return undefined
  const object = encrypted ? undefined : parseObjectJwt(text)
  if (!encrypted && object === undefined) return invalidRequestObject('The request object is no JWT.')
  const header = object && headerFault(object.header, 'oauth-authz-req+jwt')
  if (header !== undefined) return invalidRequestObject(`The request object ${header}`)
  if (object === undefined || (required !== undefined && object.header['alg'] !== required)) {
    return invalidRequestObject(
      `This client must send request objects that are signed with ${required} and not encrypted.`,
    )
  }
  const fault = (await unsignedFault(object, client)) ?? objectFault(object, client, rules)
  if (fault === undefined) return refuseParameters((name) => object.claims[name], 'request object')
  return typeof fault === 'string' ? invalidRequestObject(`The request object ${fault}`) : fault
}

/** 400 `invalid_request_object` (RFC 9101 section 6). */
function invalidRequestObject(description: string): Refusal {
  return badRequest(description, { oauthError: 'invalid_request_object' })
}

/** Parses a JWT, signed or not: an unsigned one (RFC 7519 section 6) has an empty signature and the algorithm `none`. */
function parseObjectJwt(text: string): ClientJwt | undefined {
  const unsigned = text.endsWith('.')
  const object = parseJwt(unsigned ? `${text}AA` : text)
  return (object?.header['alg'] === 'none') === unsigned ? object : undefined
}

/** MACs are left to the identity backend, which shares the secret; so are the objects of a client without known keys. */
async function unsignedFault(
  object: ClientJwt,
  { keys }: RequestObjectClient,
): Promise<string | Refusal | undefined> {
  const { alg } = object.header
  if (typeof alg !== 'string') return 'names no algorithm.'
  return alg === 'none' || /^HS\d/.test(alg) || keys === undefined ? undefined : signatureFault(object, keys)
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
