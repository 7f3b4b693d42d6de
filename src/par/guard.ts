import { isUtf8 } from 'node:buffer'
import { isName } from '../runtime/json.ts'
import { badRequest, Refusal } from '../errors.ts'
import { malformedCause, mismatch } from '../authenticate/jose/cause.ts'
import { assertionFault, parseJwt, refuseRequestObject } from './client-jwt.ts'
import { findClient, type ParClient, type ParRules } from './clients.ts'
import { decodeComponent, type Form, type Guard, invalidRequest } from './form.ts'
import { parseParameters, refuseBody, refuseParameters } from './form.ts'

/** Methods that are part of the request; other checks cover TLS certificates. */
const IN_THE_REQUEST = /^(?:client_secret_|private_key_jwt$)/
const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
const BASIC = /^basic +([A-Za-z0-9+/]+={0,2})$/i

/**
 * Creates the guard of the PAR endpoint (RFC 9126), which makes the backend's checks and those it omits.
 * Refusals are those of RFC 6749 section 5.2.
 */
export function createParGuard(options: ParRules): Guard {
  async function refuseClient(credentials: Credentials, client?: ParClient, realm?: string) {
    if (client === undefined && options.unknownClients === 'refuse')
      return invalidClient('This client is not known here.', 'par.unknownClients: refuse', realm)
    const { clientId, method, proved, jwt, assertion } = credentials
    const { authentication = '', keys } = client ?? {}
    const other = `This client must authenticate by ${authentication}.`
    const cause = `accepted authentication: ${authentication}; of the request: ${method}`
    if (method === 'none' && IN_THE_REQUEST.test(authentication))
      return badRequest(other, { oauthError: 'invalid_request', cause })
    if (method === 'secret' && authentication === 'private_key_jwt') return invalidClient(other, cause, realm)
    if (jwt === undefined) return undefined
    // A MAC needs the secret of the client, not the keys of its request objects.
    const isMac = authentication !== 'private_key_jwt' && /^HS\d/.test(String(assertion?.header['alg']))
    if (keys !== undefined && authentication !== 'client_secret_jwt' && !isMac) {
      const fault = await assertionFault(jwt, assertion, clientId, keys, options)
      if (fault === undefined || fault instanceof Refusal) return fault
      return invalidClient(`The client_assertion ${fault.phrase}`, fault.cause)
    }
    // The gateway cannot verify a client_secret_jwt: only the backend has the secret.
    if (proved !== undefined) return undefined
    return badRequest('The client_assertion must be a JWT with the client_id as sub.', {
      oauthError: 'invalid_request',
      cause: assertion
        ? mismatch('sub', assertion.claims['sub'], [clientId], 'assertion')
        : malformedCause(jwt),
    })
  }

  return async (search, received, onClaim) => {
    // RFC 6749 section 2.3.1: backends that merge the query with the form would read another request.
    if (search !== '' || !received) return invalidRequest('Send the parameters only in the form.')
    const { authorization = [], body } = received
    const unreadable = refuseBody(received)
    if (unreadable !== undefined) return unreadable
    // RFC 9126 section 2.1.
    const form = parseParameters(body.toString(), 'request_uri')
    if (form instanceof Refusal) return form
    const credentials = readCredentials(form, authorization)
    if (credentials instanceof Refusal) return credentials
    const client = findClient(options, credentials.clientId, onClaim)
    if (client instanceof Refusal) return client
    const object = form.get('request')
    const incomplete = object ? undefined : refuseParameters((name) => form.get(name), 'form')
    if (incomplete !== undefined) return incomplete
    const realm = authorization.length > 0 ? options.issuer : undefined
    const refused = await refuseClient(credentials, client, realm)
    if (refused !== undefined || client === undefined) return refused
    return refuseRequestObject(client, options, object)
  }
}

/** The client_id and the authentication method of a request, not verified. */
type Credentials = Exclude<ReturnType<typeof readCredentials>, Refusal>

/**
 * Reads the client and its authentication method (RFC 6749 section 2.3); returns a refusal for
 * several methods.
 */
function readCredentials(form: Form, authorization: readonly string[]) {
  const [header, ...more] = authorization
  const jwt = form.get('client_assertion')
  const used = [header, form.get('client_secret'), jwt].filter((value) => value !== undefined)
  if (used.length + more.length > 1)
    return invalidRequest('Send only one of Authorization, client_secret and client_assertion.')
  // RFC 7521 section 4.2: both or neither.
  const type = form.get('client_assertion_type')
  if (type !== (jwt && ASSERTION_TYPE))
    return invalidRequest(`Send both client_assertion and client_assertion_type=${ASSERTION_TYPE}.`)
  const assertion = jwt === undefined ? undefined : parseJwt(jwt)
  const sub = assertion?.claims['sub']
  const basic = header === undefined ? undefined : readBasic(header)
  if (header !== undefined && basic === undefined)
    return invalidRequest('The Authorization header must be Basic with form-encoded credentials.')
  /**
   * The client that the method itself names; undefined for `none`, and for an assertion without a
   * readable `sub`.
   */
  const proved = basic ?? (isName(sub) ? sub : undefined)
  const named = form.get('client_id')
  if (named !== undefined && proved !== undefined && named !== proved)
    return invalidRequest('The client_id is not the one in Authorization or client_assertion.')
  const clientId = named ?? proved
  if (clientId === undefined) return invalidRequest('The client_id is missing.')
  const secretOrAssertion = jwt === undefined ? 'secret' : 'assertion'
  /** `none` may still be a TLS certificate. */
  const method = used.length === 0 ? 'none' : secretOrAssertion
  return { clientId, proved, method, jwt, assertion }
}

/** Returns the client of a Basic header, whose halves are form-encoded (RFC 6749 section 2.3.1). */
function readBasic(header: string): string | undefined {
  const bytes = Buffer.from(BASIC.exec(header)?.[1] ?? '', 'base64')
  const text = isUtf8(bytes) ? bytes.toString() : ''
  const colon = text.indexOf(':')
  if (colon === -1 || decodeComponent(text.slice(colon + 1)) === undefined) return undefined
  return decodeComponent(text.slice(0, colon)) || undefined
}

/**
 * Returns a 401 `invalid_client`, with a challenge if the client used the Authorization header (RFC
 * 6749 section 5.2).
 */
function invalidClient(description: string, cause: string, realm?: string): Refusal {
  const quoted = realm?.replaceAll(/[^ !#-[\]-~]/g, '')
  return new Refusal('Unauthorized', description, {
    oauthError: 'invalid_client',
    cause,
    headers: quoted === undefined ? {} : { 'WWW-Authenticate': `Basic realm="${quoted}"` },
  })
}
