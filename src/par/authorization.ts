import { Refusal } from '../errors.ts'
import { refuseRequestObject } from './client-jwt.ts'
import { findClient, type ParRules, signingOf } from './clients.ts'
import { type Form, type Guard, invalidRequest, refuseBody, splitParameters } from './form.ts'

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
    if (named === undefined) return refuseUnnamed(pairs, rules.requestUri)
    const client = findClient(rules, named[1], onClaim)
    if (client instanceof Refusal) return client
    if (!client || !(signingOf(client) ?? client.pushed)) return undefined

    // A backend may merge them, or read only one.
    if (query !== '' && body !== '')
      return invalidRequest('Send the parameters in the query or in the form, not in both.')
    const parameters = decidingParameters(query + body)
    if (parameters instanceof Refusal) return parameters
    const [object, uri] = [parameters.get('request'), parameters.get('request_uri')]
    if (object !== undefined && uri !== undefined)
      return invalidRequest('Send request or request_uri, not both.')
    if (uri?.startsWith(rules.requestUri)) return undefined
    if (uri !== undefined || client.pushed !== undefined)
      return invalidRequest('This client must push its request, and send the request_uri here.')
    return refuseRequestObject(client, rules, object)
  }
}

/**
 * Refuses a request without a client_id that refers to an object, by whose client_id a backend
 * could find the client.
 */
function refuseUnnamed(pairs: readonly Pair[], pushed: string): Refusal | undefined {
  const refers = pairs.some(
    ([name, value]) => name === 'request' || (name === 'requesturi' && !value.startsWith(pushed)),
  )
  return refers ? invalidRequest('The client_id is missing.') : undefined
}

/** The parameters that decide, by the letters of their names. All others are ignored (RFC 6749 section 3.1). */
const DECIDING: ReadonlyMap<string, string> = new Map([
  ['clientid', 'client_id'],
  ['request', 'request'],
  ['requesturi', 'request_uri'],
])

/**
 * Returns the parameters that decide and have a value. Returns a 400 if a backend could read one of
 * them in another way: under another spelling of its name, twice, or split at a semicolon.
 */
function decidingParameters(text: string): Form | Refusal {
  const pairs = splitParameters(text, '&')
  if (pairs instanceof Refusal) return pairs
  const found = new Map<string, string>()
  const seen = new Set<string>()
  for (const [name, value] of pairs) {
    if (name === undefined) return malformedName()
    const decides = DECIDING.get(lettersOf(name))
    if (decides !== undefined && name !== decides) return malformedName()
    // RFC 8707 section 2.
    if (seen.has(name) && name !== 'resource') return invalidRequest(`Send the parameter ${name} once.`)
    seen.add(name)
    if (decides === undefined) continue
    if (value === undefined)
      return invalidRequest(`The parameter ${name} is malformed; percent-encode its value as UTF-8.`)
    if (value !== '') found.set(name, value)
  }
  if (!text.includes(';') || isSameAtSemicolons(text, pairs)) return found
  return invalidRequest('Percent-encode each semicolon of the parameters.')
}

type Pairs = Exclude<ReturnType<typeof splitParameters>, Refusal>

/** True if parsers that split at semicolons, too, read the same parameters that decide. */
function isSameAtSemicolons(text: string, pairs: Pairs): boolean {
  const split = splitParameters(text, /[&;]/)
  if (split instanceof Refusal) return false
  const deciding = (all: Pairs) => all.filter(([name]) => name === undefined || DECIDING.has(lettersOf(name)))
  const [some, others] = [deciding(pairs), deciding(split)]
  return some.length === others.length && some.every(([, value], i) => value === others[i]![1])
}

/**
 * Returns the letters and digits of a name in lower case, as lenient backends read it: these ignore
 * case and blanks, and take `client_id[0]` and `[client_id]` for `client_id`.
 */
function lettersOf(name: string): string {
  const [base = ''] = /[^[\]]+/.exec(name) ?? []
  return base.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

const malformedName = () => invalidRequest('A parameter has a malformed name.')

/** The letters of a parameter's name, and its value. */
type Pair = readonly [name: string, value: string]

/**
 * Returns the parameters that have a value, as lenient backends read them, which also split at
 * semicolons. A malformed value becomes U+FFFD, which no client id contains. Returns a 400 for too
 * many parameters, and for a malformed name, which PHP ends at a NUL.
 */
function lenientPairs(text: string): readonly Pair[] | Refusal {
  const parameters = splitParameters(text, /[&;]/)
  if (parameters instanceof Refusal) return parameters
  const pairs: Pair[] = []
  for (const [name, value = '\uFFFD'] of parameters) {
    if (value === '') continue
    if (name === undefined) return malformedName()
    pairs.push([lettersOf(name), value])
  }
  return pairs
}
