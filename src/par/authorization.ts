import { Refusal } from '../errors.ts'
import type { JwtRules } from './client-authentication.ts'
import { findClient, type ParClients, refuseClientId } from './client-id.ts'
import { type Body, decodeComponent, invalidRequest, parseParameters, refuseBody } from './form.ts'
import { refuseRequestObject, signingOf } from './request-object.ts'

/** A request to the authorisation endpoint: `query` without its `?`, and the body of a POST. */
export interface AuthorizationRequest {
  readonly query: string
  readonly form: Body | undefined
}

export type AuthorizationGuard = ReturnType<typeof createAuthorizationGuard>

const PUSHED = 'urn:ietf:params:oauth:request_uri:'

/**
 * Creates the guard of the authorisation endpoint (RFC 6749 section 3.1), which holds listed clients to what their settings require:
 * a pushed request (RFC 9126) or a signed request object (RFC 9101). Refusals are errors of RFC 6749 section 5.2, as the redirect
 * URI is not verified here.
 */
export function createAuthorizationGuard(options: JwtRules & ParClients) {
  return {
    /**
     * Returns a refusal; undefined if the request is to be forwarded. Never rejects; may wait for the keys of a client. Calls
     * `onClaim` with the client that the request names.
     */
    async check({ query, form }: AuthorizationRequest, onClaim?: (clientId: string) => void) {
      const body = form?.body.toString() ?? ''
      const unreadable = body === '' ? undefined : refuseBody(form!)
      if (unreadable !== undefined) return unreadable
      const ids = [...valuesOf('clientid', query), ...valuesOf('clientid', body)]
      const [clientId, ...others] = ids
      if (others.length > 0) return invalidRequest('Send the client_id once.')
      if (clientId === undefined) return refuseUnnamed(query, body)
      const malformed = refuseClientId(clientId)
      if (malformed !== undefined) return malformed
      onClaim?.(clientId)
      const client = findClient(options, clientId)
      if (client instanceof Refusal) return client
      if (client === undefined || (signingOf(client) === undefined && client.pushed === undefined))
        return undefined

      // A backend may merge them, or read one of the two.
      if (query !== '' && body !== '')
        return invalidRequest('Send the parameters in the query or in the form, not in both.')
      const parameters = parseParameters(query + body)
      if (parameters instanceof Refusal) return parameters
      const [object, uri] = [parameters.get('request'), parameters.get('request_uri')]
      if (object !== undefined && uri !== undefined)
        return invalidRequest('Send request or request_uri, not both.')
      if (uri?.startsWith(PUSHED)) return undefined
      if (uri !== undefined || client.pushed !== undefined) {
        return invalidRequest(
          'This client must push its request, and send here the request_uri that it gets for it.',
        )
      }
      return refuseRequestObject(object, client, options)
    },
  }
}

/** Refuses a request without a client_id that leads to an object with one, by which a backend could find the client. */
function refuseUnnamed(query: string, body: string): Refusal | undefined {
  const objects = [query, body].flatMap((text) => valuesOf('request', text))
  const uris = [query, body].flatMap((text) => valuesOf('requesturi', text))
  if (objects.length === 0 && uris.every((uri) => uri.startsWith(PUSHED))) return undefined
  return invalidRequest('The client_id is missing.')
}

/**
 * Returns every value that a backend may read as that of a parameter, whose name is given by its letters: lenient ones ignore case
 * and brackets, and split at semicolons. A malformed value becomes U+FFFD, which no client id has.
 */
function valuesOf(letters: string, text: string): readonly string[] {
  return text.split(/[&;]/).flatMap((pair) => {
    const [name, value] = pair.split(/=(.*)/s, 2) as [string, string?]
    const plain = (decodeComponent(name) ?? name).toLowerCase().replaceAll(/[^a-z0-9]/g, '')
    const decoded = decodeComponent(value ?? '') ?? '\uFFFD'
    return plain === letters && decoded !== '' ? [decoded] : []
  })
}
