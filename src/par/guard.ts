import { isClientId } from '../authenticate/token/claims.ts'
import type { Keys } from '../authenticate/token/jwks.ts'
import { badRequest, Refusal } from '../errors.ts'
import {
  assertionFault,
  claimsFault,
  type Credentials,
  invalidClient,
  type JwtFault,
  type JwtRules,
  parseJwt,
  readCredentials,
  signatureFault,
} from './client-authentication.ts'
import { invalidRequest, readForm, refuseParameters } from './form.ts'

/** A client whose settings are known; what is left out is not checked. */
export interface ParClient {
  readonly id: string
  /** How it authenticates, by the names of RFC 7591 section 2. */
  readonly authentication?: string | undefined
  /** The algorithm of its request objects; undefined and `none` require nothing. */
  readonly requestObjectSigningAlg?: string | undefined
  readonly keys?: Keys | undefined
}

export interface ParGuardOptions extends JwtRules {
  /** What becomes of clients that are not listed, once their form is found good. */
  readonly unknownClients: 'forward' | 'refuse'
  /** The settings of a client; undefined where it is not listed. */
  clientOf(id: string): ParClient | undefined
  /** True if an id that is not listed is a listed client's in another spelling. */
  isMisspelt(id: string): boolean
}

/** A POST to the PAR endpoint, its body read. */
export interface PushedRequest {
  readonly contentType: string | undefined
  readonly contentEncoding?: string | undefined
  /** Every `Authorization` value. */
  readonly authorization: readonly string[]
  readonly body: Buffer
}

export type ParGuard = ReturnType<typeof createParGuard>

/** RFC 7516 section 7.1; the encrypted key and the ciphertext may be empty. */
const ENCRYPTED = /^[\w-]+(?:\.[\w-]*){4}$/

/** Methods that are part of the request; TLS certificates are checked elsewhere. */
const IN_THE_REQUEST = /^(?:client_secret_|private_key_jwt$)/

/** Enforces at the PAR endpoint (RFC 9126) what the backend would refuse or forgets to; refuses as RFC 6749 section 5.2 says. */
export function createParGuard(options: ParGuardOptions) {
  const { issuer, unknownClients, clientOf, isMisspelt } = options

  async function refuseClient(credentials: Credentials, client: ParClient | undefined, realm?: string) {
    if (client === undefined && unknownClients === 'refuse') {
      return invalidClient('This client is not known here.', realm)
    }
    const { method, proved } = credentials
    const { authentication, keys } = client ?? {}
    if (method === 'none') {
      if (!IN_THE_REQUEST.test(authentication ?? '')) return undefined
      return invalidRequest(`This client must authenticate by ${authentication}.`)
    }
    if (method === 'secret') {
      if (authentication !== 'private_key_jwt') return undefined
      const description = 'This client must authenticate by private_key_jwt; send a client_assertion.'
      return invalidClient(description, realm)
    }
    if (keys !== undefined && authentication !== 'client_secret_jwt') {
      const fault = await assertionFault(credentials, keys, options)
      return typeof fault === 'string' ? invalidClient(`The client_assertion ${fault}`) : fault
    }
    // Only who shares its secret can verify a client_secret_jwt.
    if (proved !== undefined) return undefined
    return invalidRequest('The client_assertion must be a JWT with the client_id as sub.')
  }

  return {
    /**
     * Returns a refusal, or undefined where the request is to be forwarded: byte for byte, and once. Waits for keys at most;
     * never rejects. Calls `onClaim` with the client that the request names, once its form can be read.
     */
    async check(
      { contentType, contentEncoding, authorization, body }: PushedRequest,
      onClaim?: (clientId: string) => void,
    ) {
      if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity') {
        return invalidRequest('Send the form without a Content-Encoding.')
      }
      const form = readForm(contentType, body)
      if (form instanceof Refusal) return form
      const credentials = readCredentials(form, authorization)
      if (credentials instanceof Refusal) return credentials
      const { clientId } = credentials
      if (isClientId(clientId)) onClaim?.(clientId)
      const object = form.get('request')
      const incomplete = object === undefined ? refuseParameters((name) => form.get(name), 'form') : undefined
      if (incomplete !== undefined) return incomplete

      const client = clientOf(clientId)
      if (client === undefined && isMisspelt(clientId)) {
        return invalidRequest('The client_id is not spelt as it is registered.')
      }
      const realm = authorization.length > 0 ? issuer : undefined
      const refused = await refuseClient(credentials, client, realm)
      if (refused !== undefined || client === undefined) return refused
      return refuseRequestObject(object, client, options)
    },
  }
}

/** Checks the request object (RFC 9101 section 6, OpenID Connect Core section 6) of a listed client, which may have to send one. */
async function refuseRequestObject(text: string | undefined, client: ParClient, rules: JwtRules) {
  const { requestObjectSigningAlg: alg } = client
  const required = alg === 'none' ? undefined : alg
  if (text === undefined) {
    if (required === undefined) return undefined
    return invalidRequest(`This client must send a request object signed with ${required} as request.`)
  }
  const fault = await objectFault(text, required, client, rules)
  if (typeof fault !== 'string') return fault
  return badRequest(`The request object ${fault}`, { oauthError: 'invalid_request_object' })
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
