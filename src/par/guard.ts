import { Refusal } from '../errors.ts'
import {
  assertionFault,
  type Credentials,
  invalidClient,
  type JwtRules,
  readCredentials,
} from './client-authentication.ts'
import { findClient, type ParClient, type ParClients, refuseClientId } from './client-id.ts'
import { type Body, invalidRequest, parseParameters, refuseBody, refuseParameters } from './form.ts'
import { refuseRequestObject } from './request-object.ts'

export interface ParGuardOptions extends JwtRules, ParClients {
  /** Treatment of unlisted clients whose form is valid. */
  readonly unknownClients: 'forward' | 'refuse'
}

/** A POST to the PAR endpoint, its body read. */
export interface PushedRequest extends Body {
  /** Every `Authorization` value. */
  readonly authorization: readonly string[]
}

export type ParGuard = ReturnType<typeof createParGuard>

/** Methods that are part of the request; TLS certificates are checked elsewhere. */
const IN_THE_REQUEST = /^(?:client_secret_|private_key_jwt$)/

/** Enforces at the PAR endpoint (RFC 9126) what the backend would refuse or forgets to; refuses as RFC 6749 section 5.2 says. */
export function createParGuard(options: ParGuardOptions) {
  const { issuer, unknownClients } = options

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
    async check({ authorization, ...sent }: PushedRequest, onClaim?: (clientId: string) => void) {
      const unreadable = refuseBody(sent)
      if (unreadable !== undefined) return unreadable
      // RFC 9126 section 2.1.
      const form = parseParameters(sent.body.toString(), 'request_uri')
      if (form instanceof Refusal) return form
      const credentials = readCredentials(form, authorization)
      if (credentials instanceof Refusal) return credentials
      const { clientId } = credentials
      const malformed = refuseClientId(clientId)
      if (malformed !== undefined) return malformed
      onClaim?.(clientId)
      const client = findClient(options, clientId)
      if (client instanceof Refusal) return client
      const object = form.get('request')
      const incomplete = object === undefined ? refuseParameters((name) => form.get(name), 'form') : undefined
      if (incomplete !== undefined) return incomplete
      const realm = authorization.length > 0 ? issuer : undefined
      const refused = await refuseClient(credentials, client, realm)
      if (refused !== undefined || client === undefined) return refused
      return refuseRequestObject(object, client, options)
    },
  }
}
