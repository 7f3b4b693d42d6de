import type { IncomingMessage } from 'node:http'
import { ambiguousFraming, type Refusal } from '../errors.ts'

/** Bytes of body that a request announces: 0 for none, undefined for a chunked body. */
export type BodyLength = number | undefined

/**
 * Methods whose bodies have no defined meaning (RFC 9110 section 9.3). Many servers do not read them,
 * and would find the next request in them.
 */
export const BODILESS: ReadonlySet<unknown> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])

/** Methods whose bodies servers expect. One that reads none must close the connection (RFC 9112 section 9.3). */
const READ: ReadonlySet<unknown> = new Set(['POST', 'PUT', 'PATCH'])

/** True for a body that a server may leave unread: its connection must not carry another request. */
export const mayBeUnread = (method: unknown, length: BodyLength): boolean => length !== 0 && !READ.has(method)

/** Other codings before a final chunked: the body has an end, but cannot be decoded (RFC 9112 section 6.1). */
const UNKNOWN_CODING = /^(?:(?!chunked\b)[\w!#$%&'*+.^`|~-]+[ \t]*,[ \t]*)+chunked$/i

type Request = Pick<IncomingMessage, 'httpVersion' | 'headers'>

/** Returns the announced length, or refuses a framing that two servers could parse differently (RFC 9112 section 6). */
export function bodyLength({ httpVersion, headers }: Request): BodyLength | Refusal {
  if (httpVersion !== '1.1' && httpVersion !== '1.0')
    return ambiguousFraming('This is neither HTTP/1.1 nor HTTP/1.0.')
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (coding === undefined && length === undefined) return 0
  if (length !== undefined && coding !== undefined)
    return ambiguousFraming('Send Content-Length or Transfer-Encoding, not both.')
  if (coding !== undefined && (httpVersion !== '1.1' || coding.toLowerCase() !== 'chunked')) {
    const isUnknown = httpVersion === '1.1' && UNKNOWN_CODING.test(coding)
    const code = isUnknown ? 'NotImplemented' : 'BadRequest'
    return ambiguousFraming('The only Transfer-Encoding accepted is "chunked", in HTTP/1.1.', code)
  }
  if (length !== undefined && !/^(?:0|[1-9]\d{0,14})$/.test(length))
    return ambiguousFraming('The Content-Length is not a decimal number.')
  return length === undefined ? undefined : Number(length)
}
