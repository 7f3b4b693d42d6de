import { Refusal } from '../errors.ts'
import { assertionFault, type Credentials, invalidClient, readCredentials } from './client-authentication.ts'
import type { JwtRules } from './client-jwt.ts'
import { invalidRequest, readForm, refuseParameters } from './form.ts'
import { type ParClient, refuseRequestObject } from './request-object.ts'

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

/** Methods that are part of the request; TLS certificates are checked elsewhere. */
const IN_THE_REQUEST = /^(?:client_secret_|private_key_jwt$)/

/**
 * Enforces at the PAR endpoint (RFC 9126) what the identity backend would refuse or forgets to: first of the form, then of the
 * client's authentication, then of the request object. Refusals are those of RFC 6749 section 5.2.
 */
export function createParGuard(options: ParGuardOptions) {
  const { issuer, unknownClients, clientOf, isMisspelt } = options

  async function refuseClient(
    credentials: Credentials,
    client: ParClient | undefined,
    realm: string | undefined,
  ): Promise<Refusal | undefined> {
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
    /** Returns a refusal, or undefined where the request is to be forwarded: byte for byte, and once. Waits for keys at most; never rejects. */
    async check({
      contentType,
      contentEncoding,
      authorization,
      body,
    }: PushedRequest): Promise<Refusal | undefined> {
      if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity') {
        return invalidRequest('Send the form without a Content-Encoding.')
      }
      const form = readForm(contentType, body)
      if (form instanceof Refusal) return form
      const credentials = readCredentials(form, authorization)
      if (credentials instanceof Refusal) return credentials
      const object = form.get('request')
      const incomplete = object === undefined ? refuseParameters((name) => form.get(name), 'form') : undefined
      if (incomplete !== undefined) return incomplete

      const { clientId } = credentials
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
