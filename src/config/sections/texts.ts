import { isIP } from 'node:net'
import { z } from 'zod'
import { isSetByGateway } from '../../downstream/own-fields.ts'
import { parsePublicUrl } from '../../downstream/public-url.ts'
import { parseHost } from '../../downstream/target.ts'
import {
  decideAction,
  HOP_BY_HOP,
  isCallerField,
  normalizeFieldName,
} from '../../downstream/request-fields.ts'
import { isName as isPrintable } from '../../runtime/json.ts'
import { mustBe } from '../yaml/issue.ts'
import { stringThat, text } from './values.ts'

const isName = (host: string): boolean =>
  isIP(host) === 0 && /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host)
const isHost = (host: string): boolean => isIP(host) !== 0 || isName(host)
export const bindHost = stringThat(isHost, 'an address or host name without port, such as 127.0.0.1')

export const servedHost = stringThat(
  (host) => parseHost(host)?.port === '' && !/\*|:$/.test(host),
  'a host name without port, such as api.example.com',
).transform((host) => parseHost(host)!.host)

/**
 * A name in a server’s certificate. Addresses cannot be sent as a server name (RFC 6066 section 3).
 */
export const tlsName = stringThat(isName, 'a host name such as data.internal')

const MAX_BITS: Readonly<Record<number, number>> = { 4: 32, 6: 128 }

/** A range of addresses, such as `10.0.0.0/8`, or one address, which becomes a range. */
export const cidr = stringThat((range) => {
  const [, address = range, bits = '0'] = /^([^/]+)\/(\d{1,3})$/.exec(range) ?? []
  const max = MAX_BITS[isIP(address)]
  return max !== undefined && !range.includes('%') && Number(bits) <= max
}, 'a range of addresses such as 10.0.0.0/8, or one address').transform((range) =>
  range.includes('/') ? range : `${range}/${MAX_BITS[isIP(range)]}`,
)

/** Schema of an http or https URL without path, query and credentials; gives its origin. */
export const origin = stringThat(
  (text) => isHttpUrl(text) && new URL(text).href === `${new URL(text).origin}/`,
  'an http or https address that ends after the port, such as http://data.internal:4000',
).transform((text) => new URL(text).origin)

/** A path of plain segments, without a slash at its end. */
const PLAIN_PATH = /^(?:\/(?!\.\.?(?:\/|$))[A-Za-z0-9._~!$&'()*+,=:@-]+)*$/
const UNIX_SOCKET = /^unix:(\/[^\s?#]+)$/

/**
 * Schema of an upstream's address: an http or https URL, with a path before that of each request or
 * without, or a Unix socket. Gives the address and the path.
 */
export const backendAddress = stringThat((text) => {
  if (text.startsWith('unix:'))
    return UNIX_SOCKET.test(text) || 'is not a Unix socket; write unix:/run/app.sock'
  if (!isHttpUrl(text)) return false
  const path = text.replace(/^https?:\/\/[^/?#]*/i, '').replace(/\/$/, '')
  return PLAIN_PATH.test(path) || 'must have a plain path, without query, "." and ".." segments or escapes'
}, 'an http or https address such as http://data.internal:4000, or unix:/run/app.sock').transform((text) => {
  if (text.startsWith('unix:')) return { origin: text, path: '' }
  const { origin, pathname } = new URL(text)
  return { origin, path: pathname.replace(/\/$/, '') }
})

/** Schema of the identifier of a protected resource (RFC 9728 section 1.2), without a query. */
export const resourceUrl = stringThat((text) => {
  if (!isHttpUrl(text)) return false
  const path = text.replace(/^https?:\/\/[^/?#]*/i, '').replace(/\/$/, '')
  return PLAIN_PATH.test(path) || 'must have a plain path, without query, "." and ".." segments or escapes'
}, 'the URL of the API, such as https://api.example.com')

/** Schema of the URL that callers use: scheme, host, port and path prefix. */
export const publicUrl = stringThat((text) => {
  if (!isHttpUrl(text)) return false
  const path = text.replace(/^https?:\/\/[^/?#]*/i, '').replace(/\/$/, '')
  return PLAIN_PATH.test(path) || 'must have a plain path, without query, "." and ".." segments or escapes'
}, 'the URL that callers use, such as https://api.example.com or https://api.example.com/bank').transform(
  parsePublicUrl,
)

/** Schema of a Host that an upstream is asked as. */
export const hostValue = stringThat(
  (host) => parseHost(host) !== undefined && !host.endsWith(':'),
  'a host with an optional port, such as data.example.com',
)

/** Schema of an issuer’s URL as written, because it is compared exactly. */
export const issuer = stringThat(
  isDiscoverable,
  'the issuer’s URL without query or fragment, such as https://identity.example.com/oidc',
)

/** True for an issuer whose metadata can be discovered (RFC 8414 section 2: no query, no fragment). */
export function isDiscoverable(issuer: string): boolean {
  return isHttpUrl(issuer) && !/[?#\s]/.test(issuer)
}

/** Schema of an issuer as in `iss`, which may be any text (RFC 7519 section 4.1.1). */
export const issuerName = stringThat(isPrintable, 'the issuer exactly as in iss, without control characters')

export const keysLocation = stringThat(
  (text) => text !== '' && (!/^\w+:/.test(text) || isFetchable(text)),
  'an http or https URL, or the path of a file',
).transform((text) => (isHttpUrl(text) ? { url: text } : { file: text }))

export const fetchedUrl = (what: string) =>
  stringThat(isFetchable, `an http or https URL without credentials or "#": ${what}`)

/**
 * The URL of a page, in the characters of RFC 3986 section 2: it is sent in JSON without escapes,
 * and an anchor is added to it.
 */
export const pageUrl = stringThat(
  (text) => isHttpUrl(text) && /^[\w.~:/?[\]@!$&'()*+,;=%-]+$/.test(text),
  'the URL of a page, without "#" or credentials, such as https://docs.example.com/errors',
)

export const pemFile = text('the path of a PEM file')

/** True for an http or https URL without credentials. */
export function isHttpUrl(text: string): boolean {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return false
  const { port, username, password } = new URL(text)
  return port !== '0' && username + password === ''
}

const isFetchable = (text: string): boolean => isHttpUrl(text) && !text.includes('#')

const FIELD = /^[\w!#$%&'*+.^`|~-]+$/
export const isFieldName = (name: string): boolean => FIELD.test(name)
const isFieldValue = (value: string): boolean => /^[!-~](?:[ -~]*[!-~])?$/.test(value)

export const headerFields = z.record(
  z.string().regex(FIELD, { error: 'is not a header field; write a name such as authorization' }),
  stringThat(isFieldValue, 'a header field’s value: printable ASCII without blanks around it'),
  mustBe('a mapping of header fields to their values'),
)

/** Schema of the field in which a trusted proxy reports the certificate of a TLS client. */
export const certificateFieldName = stringThat((field) => {
  const action = decideAction(field.toLowerCase())
  if (!FIELD.test(field)) return false
  return (
    action === 'keep' ||
    action === 'from-proxy' ||
    'is read, set or dropped by the gateway itself; name another'
  )
}, 'the name of a header field such as X-Forwarded-Tls-Client-Cert')

/** Schema of a field in which a trusted proxy names the caller to the upstream. */
export const identityField = stringThat((field) => {
  const name = normalizeFieldName(field.toLowerCase())
  const isRead = decideAction(name) === 'checked' || HOP_BY_HOP.has(name)
  if (isRead || name.startsWith('content-')) return 'is read by the gateway itself; remove it'
  return FIELD.test(field)
}, 'the name of a header field such as X-My-User')

/** Schema of a field that callers may send to an upstream, although the gateway drops it otherwise. */
export const callerField = stringThat((field) => {
  const name = field.toLowerCase()
  if (!FIELD.test(field)) return false
  if (decideAction(name) === 'keep' || decideAction(name) === 'checked')
    return 'is forwarded anyway; remove it'
  return isCallerField(name) || 'decides about the request, or is set by the gateway; remove it'
}, 'the name of a header field such as X-Client-Id')

/**
 * Checks a field that limits count by. Returns true, a mistake, or false if it is not a field name.
 * One of `callerHeaders` is checked across the sections.
 */
export const countedFieldIssue = (field: string): boolean | string =>
  isCallerField(field.toLowerCase()) ? FIELD.test(field) : fieldIssue(field)

/**
 * Checks a field that has the request id. Returns true, a mistake, or false if it is not a field
 * name.
 */
export function fieldIssue(field: string): boolean | string {
  const name = field.toLowerCase()
  if (decideAction(name) !== 'keep' || isSetByGateway(name))
    return 'is a field that the gateway itself reads, sets or drops; name another'
  return FIELD.test(name)
}
