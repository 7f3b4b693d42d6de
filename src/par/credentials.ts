import { isUtf8 } from 'node:buffer'
import { isName } from '../authenticate/token/claims.ts'
import type { Refusal } from '../errors.ts'
import { decodeComponent, type Form } from './form.ts'
import { type Jwt, readJwt } from './jwt.ts'
import { invalidRequest } from './refusal.ts'

/** Who a request says it is from, and how it wants to prove that. Nothing of it is verified. */
export interface Credentials {
  readonly clientId: string
  /** The client that the method itself names; undefined where it is `none`, or an assertion of which it cannot be told whose it is. */
  readonly proved: string | undefined
  /** `none` may still be a TLS certificate. */
  readonly method: 'none' | 'secret' | 'assertion'
  /** A client assertion taken apart, where it is a JWT. */
  readonly assertion: Jwt | undefined
}

const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
const BASIC = /^basic +([A-Za-z0-9+/]+={0,2})$/i

/** Finds the client and its one method of authentication (RFC 6749 section 2.3); a refusal where there are none or several. */
export function readCredentials(form: Form, authorization: readonly string[]): Credentials | Refusal {
  const [header, ...more] = authorization
  const assertionText = form.get('client_assertion')
  const used = [header, form.get('client_secret'), assertionText].filter((one) => one !== undefined)
  if (used.length > 1 || more.length > 0) {
    return invalidRequest('Authenticate in one way: Authorization, client_secret or client_assertion.')
  }
  const fault = refuseAssertionType(form)
  if (fault !== undefined) return fault

  const named = form.get('client_id')
  let proved: string | undefined
  let assertion: Jwt | undefined
  if (header !== undefined) {
    proved = readBasic(header)
    if (proved === undefined) {
      return invalidRequest(
        'The Authorization header is malformed; send Basic with form-encoded credentials.',
      )
    }
  } else if (assertionText !== undefined) {
    assertion = readJwt(assertionText)
    const sub = assertion?.claims['sub']
    proved = isName(sub) ? sub : undefined
  }
  if (named !== undefined && proved !== undefined && named !== proved) {
    const where = header === undefined ? 'sub in the client_assertion' : 'client in the Authorization header'
    return invalidRequest(`The client_id is not the ${where}.`)
  }
  const clientId = named ?? proved
  if (clientId === undefined) return invalidRequest('The client_id is missing.')
  const method = used.length === 0 ? 'none' : assertionText === undefined ? 'secret' : 'assertion'
  return { clientId, proved, method, assertion }
}

/** RFC 7521 section 4.2: both or neither. */
function refuseAssertionType(form: Form): Refusal | undefined {
  const type = form.get('client_assertion_type')
  if (!form.has('client_assertion')) {
    return type === undefined ? undefined : invalidRequest('The client_assertion is missing.')
  }
  return type === ASSERTION_TYPE ? undefined : invalidRequest(`Send client_assertion_type=${ASSERTION_TYPE}`)
}

/** The client of a Basic header, whose halves are form-encoded (RFC 6749 section 2.3.1). */
function readBasic(header: string): string | undefined {
  const bytes = Buffer.from(BASIC.exec(header)?.[1] ?? '', 'base64')
  const text = isUtf8(bytes) ? bytes.toString() : ''
  const colon = text.indexOf(':')
  if (colon === -1 || decodeComponent(text.slice(colon + 1)) === undefined) return undefined
  return decodeComponent(text.slice(0, colon)) || undefined
}
