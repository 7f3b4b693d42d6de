import { Refusal } from '../errors.ts'
import { refuseRequestObject } from './client-jwt.ts'
import { findClient, type ParRules, signingOf } from './clients.ts'
import { type Guard, invalidRequest, parseParameters, refuseBody, splitParameters } from './form.ts'

const PUSHED = 'urn:ietf:params:oauth:request_uri:'

/**
 * Creates the guard of the authorisation endpoint (RFC 6749 section 3.1), which requires a pushed
 * request (RFC 9126) or a signed request object (RFC 9101) of clients with such settings. Refusals
 * are errors of section 5.2, as the redirect URI is not verified here.
 */
export function createAuthorizationGuard(rules: ParRules): Guard {
  return async (search, form, onClaim) => {
    const query = search.slice(1)
    const body = form?.body.toString() ?? ''
    const unreadable = body === '' ? undefined : refuseBody(form!)
    if (unreadable !== undefined) return unreadable
    const pairs = lenientPairs([query, body].filter((text) => text !== '').join('&'))
    if (pairs instanceof Refusal) return pairs
    const [named, ...others] = pairs.filter(([name]) => name === 'clientid')
    if (others.length > 0) return invalidRequest('Send the client_id once.')
    if (named === undefined) return refuseUnnamed(pairs)
    const client = findClient(rules, named[1], onClaim)
    if (client instanceof Refusal) return client
    if (!client || !(signingOf(client) ?? client.pushed)) return undefined

    // A backend may merge them, or read only one.
    if (query !== '' && body !== '')
      return invalidRequest('Send the parameters in the query or in the form, not in both.')
    const parameters = parseParameters(query + body)
    if (parameters instanceof Refusal) return parameters
    const [object, uri] = [parameters.get('request'), parameters.get('request_uri')]
    if (object !== undefined && uri !== undefined)
      return invalidRequest('Send request or request_uri, not both.')
    if (uri?.startsWith(PUSHED)) return undefined
    if (uri !== undefined || client.pushed !== undefined)
      return invalidRequest('This client must push its request, and send the request_uri here.')
    return refuseRequestObject(client, rules, object)
  }
}

/**
 * Refuses a request without a client_id that refers to an object, by whose client_id a backend
 * could find the client.
 */
function refuseUnnamed(pairs: readonly Pair[]): Refusal | undefined {
  const refers = pairs.some(
    ([name, value]) => name === 'request' || (name === 'requesturi' && !value.startsWith(PUSHED)),
  )
  return refers ? invalidRequest('The client_id is missing.') : undefined
}

/** The letters of a parameter's name, and its value. */
type Pair = readonly [name: string, value: string]

/**
 * Returns the parameters that have a value, as lenient backends read them: these ignore case and
 * blanks in names, take `client_id[0]` and `[client_id]` for `client_id`, and split at semicolons. A
 * malformed value becomes U+FFFD, which no client id contains. Returns a 400 for too many parameters,
 * and for a malformed name, which PHP ends at a NUL.
 */
function lenientPairs(text: string): readonly Pair[] | Refusal {
  const parameters = splitParameters(text, /[&;]/)
  if (parameters instanceof Refusal) return parameters
  const pairs: Pair[] = []
  for (const [name, value = '\uFFFD'] of parameters) {
    if (value === '') continue
    if (name === undefined) return invalidRequest('A parameter has a malformed name.')
    const [base = ''] = /[^[\]]+/.exec(name) ?? []
    const letters = base.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
    pairs.push([letters, value])
  }
  return pairs
}
