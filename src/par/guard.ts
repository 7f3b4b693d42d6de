import { Refusal } from '../errors.ts'
import { type AssertionRules, refuseAssertion } from './client-assertion.ts'
import { type Credentials, readCredentials } from './credentials.ts'
import { readForm } from './form.ts'
import { refuseParameters } from './parameters.ts'
import { invalidClient, invalidRequest } from './refusal.ts'
import { refuseRequestObject, type RequestObjectClient, signsRequests } from './request-object.ts'

/** A client whose settings are known; what is left out is not checked. */
export interface ParClient extends RequestObjectClient {
  /** How it authenticates, by the names of RFC 7591 section 2. */
  readonly authentication?: string | undefined
}

export interface ParGuardOptions extends Omit<AssertionRules, 'now'> {
  /** What becomes of clients that are not listed, once their form is found good. */
  readonly unknownClients: 'forward' | 'refuse'
  /** The settings of a client; undefined where it is not listed. */
  clientOf(id: string): ParClient | undefined
  /** Is it the id of a listed client, spelt otherwise? Asked of ids that are not listed. */
  isMisspelt(id: string): boolean
  /** The clock, in Unix milliseconds. */
  readonly now?: () => number
}

/** A POST to the PAR endpoint, its body read. */
export interface PushedRequest {
  readonly contentType: string | undefined
  readonly contentEncoding?: string | undefined
  /** Every `Authorization` value. */
  readonly authorization: readonly string[]
  readonly body: Buffer
}

/** Who pushed a request that may pass. Of a client that is not listed, or whose authentication the backend checks, only a claim. */
export interface Pushed {
  readonly clientId: string
}

export interface ParGuard {
  /** Waits for keys at most; never rejects. What may pass is to be forwarded byte for byte, and once. */
  check(request: PushedRequest): Promise<Pushed | Refusal>
}

/** Methods that leave something in the request; TLS certificates are seen by others. */
const IN_THE_REQUEST: ReadonlySet<string> = new Set([
  'client_secret_basic',
  'client_secret_post',
  'client_secret_jwt',
  'private_key_jwt',
])

/**
 * Enforces at the PAR endpoint (RFC 9126) what the identity backend would refuse or forgets to: first of the form, then of the
 * client's authentication, then of the request object. Refusals are those of RFC 6749 section 5.2.
 */
export function createParGuard(options: ParGuardOptions): ParGuard {
  const { issuer, unknownClients, clientOf, now = Date.now } = options
  const rules = { ...options, now }

  async function refuseClient(
    credentials: Credentials,
    client: ParClient | undefined,
    realm: string | undefined,
  ): Promise<Refusal | undefined> {
    if (client === undefined && unknownClients === 'refuse') {
      return invalidClient('This client is not known here.', realm)
    }
    const { authentication, keys } = client ?? {}
    if (credentials.method === 'none') {
      if (authentication === undefined || !IN_THE_REQUEST.has(authentication)) return undefined
      return invalidRequest(`This client must authenticate by ${authentication}.`)
    }
    if (credentials.method === 'secret') {
      if (authentication !== 'private_key_jwt') return undefined
      return invalidClient(
        'This client must authenticate by private_key_jwt; send a client_assertion.',
        realm,
      )
    }
    // Only who shares its secret can verify a client_secret_jwt.
    if (keys === undefined || authentication === 'client_secret_jwt') {
      return credentials.proved === undefined
        ? invalidRequest('The client_assertion must be a JWT with the client_id as sub.')
        : undefined
    }
    const fault = await refuseAssertion(credentials.assertion, credentials.clientId, keys, rules)
    return typeof fault === 'string' ? invalidClient(fault, realm) : fault
  }

  return {
    async check({ contentType, contentEncoding, authorization, body }) {
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
      if (client === undefined && options.isMisspelt(clientId)) {
        return invalidRequest('The client_id is not spelt as it is registered.')
      }
      const realm = authorization.length > 0 ? issuer : undefined
      const refused = await refuseClient(credentials, client, realm)
      if (refused !== undefined) return refused
      if (client === undefined) return { clientId }

      if (object !== undefined) return (await refuseRequestObject(object, client, rules)) ?? { clientId }
      if (!signsRequests(client)) return { clientId }
      return invalidRequest(
        `This client must send a request object signed with ${client.requestObjectSigningAlg} as request.`,
      )
    },
  }
}
