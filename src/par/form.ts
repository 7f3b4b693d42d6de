import { isAscii, isUtf8 } from 'node:buffer'
import { badRequest, Refusal } from '../errors.ts'
import { isObject, parseObject } from '../runtime/json.ts'

/** The parameters of a form or query that have a value; the first `resource`, which may repeat. */
export type Form = ReadonlyMap<string, string>

const FORM = 'application/x-www-form-urlencoded'
/** A parameter of a media type (RFC 9110 section 5.6.6). */
const TYPE_PARAMETER = /^([\w!#$%&'*+.^`|~-]+)=("?)([\w!#$%&'*+.^`|~-]*)\2$/
const UTF_8 = /^utf-?8$/i
/** Charsets that encode ASCII characters as ASCII does. */
const LIKE_ASCII = /^(?:(?:us-)?ascii|iso-8859-1|latin1|windows-1252)$/i
const MAX_PARAMETERS = 100
/**
 * Excludes brackets, dots and capitals: frameworks interpret `a[]`, read `a.b` as `a_b`, or ignore
 * case.
 */
const NAME = /^[a-z0-9_]{1,128}$/

/**
 * Returns a 400 `invalid_request`. RFC 6749 section 5.2 requires an ASCII description without
 * quotes and backslashes.
 */
export const invalidRequest = (description: string): Refusal =>
  badRequest(description, { oauthError: 'invalid_request' })

/** The form of a POST, and every `Authorization` value. */
export interface Body {
  readonly contentType: string | undefined
  readonly contentEncoding?: string | undefined
  readonly body: Buffer
  readonly authorization?: readonly string[]
}

/**
 * Checks a request to an identity endpoint: its query, with `?` if there is one, and its form.
 * Resolves to undefined to forward it byte for byte. May wait for keys; never rejects. Calls
 * `onClaim` with a well-formed client_id.
 */
export type Guard = (
  search: string,
  form: Body | undefined,
  onClaim?: (clientId: string) => void,
) => Promise<Refusal | undefined>

/** Returns a 400 for a body that is not a form, or not in UTF-8. */
export function refuseBody({ contentType, contentEncoding, body }: Body): Refusal | undefined {
  if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity')
    return invalidRequest('Send the form without a Content-Encoding.')
  const charset = charsetOfForm(contentType ?? '')
  const isReadable = charset !== undefined && (UTF_8.test(charset) ? isUtf8(body) : isAscii(body))
  if (isReadable) return undefined
  return invalidRequest('Send the parameters as application/x-www-form-urlencoded, in UTF-8.')
}

/**
 * Returns the charset of a form, UTF-8 if its type names none; undefined for another type, and for a
 * charset that is repeated or not accepted. Other parameters have no meaning, and are ignored.
 */
function charsetOfForm(contentType: string): string | undefined {
  const [type = '', ...parameters] = contentType.split(';').map((part) => part.trim())
  if (type.toLowerCase() !== FORM) return undefined
  let charset: string | undefined
  for (const parameter of parameters.filter((one) => one !== '')) {
    const [, name, , value = ''] = TYPE_PARAMETER.exec(parameter) ?? []
    if (name === undefined) return undefined
    if (name.toLowerCase() !== 'charset') continue
    if (charset !== undefined || !(UTF_8.test(value) || LIKE_ASCII.test(value))) return undefined
    charset = value
  }
  return charset ?? 'utf-8'
}

/** RFC 6749 section 2.3.1, RFC 7521 section 4.2, RFC 6750 sections 2.2 and 2.3. */
const CREDENTIALS = /(?:^|[?&;])(?:client_secret|client_assertion|access_token)=[^&;]/

/** Returns true if a form or a query has credentials of a client, or an access token. */
export const hasClientCredentials = (text: string): boolean => CREDENTIALS.test(text)

/**
 * Splits a form or a query; returns a 400 for too many parameters. A name or value that cannot be
 * decoded is undefined.
 */
export function splitParameters(text: string, separator: string | RegExp) {
  const parts = text.split(separator, MAX_PARAMETERS + 1)
  if (parts.length > MAX_PARAMETERS) return invalidRequest(`Send at most ${MAX_PARAMETERS} parameters.`)
  return parts.filter(Boolean).map((part) => {
    const end = part.includes('=') ? part.indexOf('=') : part.length
    return [decodeComponent(part.slice(0, end)), decodeComponent(part.slice(end + 1))] as const
  })
}

/**
 * Parses a form or a query (RFC 6749 appendix B); returns a 400 if others might parse it
 * differently. A parameter without a value is omitted (RFC 6749 section 3.1), except the
 * `forbidden` one, which a backend may accept without a value.
 */
export function parseParameters(text: string, forbidden?: string): Form | Refusal {
  // Some parsers split parameters at semicolons.
  if (text.includes(';')) return invalidRequest('Percent-encode each semicolon of the parameters.')
  const pairs = splitParameters(text, '&')
  if (pairs instanceof Refusal) return pairs
  const form = new Map<string, string>()
  const seen = new Set<string>()
  for (const [name, value] of pairs) {
    if (!name || !NAME.test(name)) return invalidRequest('A parameter has a malformed name.')
    if (value === undefined)
      return invalidRequest(`The parameter ${name} is malformed; percent-encode its value as UTF-8.`)
    if (name === forbidden) return invalidRequest(`The parameter ${name} must not be pushed.`)
    if (seen.has(name)) {
      // RFC 8707 section 2.
      if (name !== 'resource') return invalidRequest(`Send the parameter ${name} once.`)
    } else if (value !== '') form.set(name, value)
    seen.add(name)
  }
  return form
}

/**
 * Decodes a component of a form; returns undefined if it is not percent-encoded UTF-8, or contains
 * a NUL.
 */
export function decodeComponent(text: string): string | undefined {
  try {
    const decoded = decodeURIComponent(text.includes('+') ? plusesToBlanks(text) : text)
    return decoded.includes('\0') ? undefined : decoded
  } catch {
    return undefined
  }
}

/**
 * Replaces pluses by blanks. For 60,000 of them, `replaceAll` takes a millisecond, 20 times as
 * long.
 */
function plusesToBlanks(text: string): string {
  const bytes = Buffer.from(text)
  for (let i = 0; i < bytes.length; i++) if (bytes[i] === 0x2b) bytes[i] = 0x20
  return bytes.toString()
}

const REQUIRED = ['client_id', 'scope', 'response_type', 'redirect_uri']

/**
 * Checks the parameters of an authorisation request (OpenID Connect Core section 3.1.2.1), in the
 * form or in a request object.
 */
export function refuseParameters(get: (name: string) => unknown, where: 'form' | 'request object') {
  for (const name of REQUIRED) {
    const value = get(name)
    if (!value || typeof value !== 'string') return invalidRequest(`Send ${name} in the ${where}.`)
  }
  if (!String(get('scope')).split(' ').includes('openid'))
    return invalidRequest(`The scope in the ${where} must have openid.`)
  const claims = get('claims')
  if (claims === undefined || claims === '' || isClaimsRequest(claims)) return undefined
  return invalidRequest(`The claims in the ${where} must have id_token or userinfo, as objects.`)
}

/**
 * OpenID Connect Core section 5.5. Only the identity backend checks the requests for single claims:
 * real clients write `"true"`.
 */
function isClaimsRequest(value: unknown): boolean {
  const claims = typeof value === 'string' ? parseObject(value) : value
  if (!isObject(claims)) return false
  const members = [claims['id_token'], claims['userinfo']].filter((member) => member !== undefined)
  return members.length > 0 && members.every(isObject)
}
