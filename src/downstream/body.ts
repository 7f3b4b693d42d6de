import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { type ErrorCode, Refusal, ambiguousFraming } from '../errors.ts'

/** Collects every `Host`, `Authorization` and `DPoP` value, since Node keeps only the first of each or joins them. */
export function readHead(rawHeaders: readonly string[]) {
  const hosts: string[] = []
  const authorization: string[] = []
  const proofs: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (lower === 'host') hosts.push(rawHeaders[i + 1]!)
    else if (lower === 'authorization') authorization.push(rawHeaders[i + 1]!)
    else if (lower === 'dpop') proofs.push(rawHeaders[i + 1]!)
  }
  return { hosts, authorization, proofs }
}

export type Head = Readonly<ReturnType<typeof readHead>>

/** How many bytes of body a request announces: 0 for none, undefined for a chunked body of unknown length. */
export type BodyLength = number | undefined

/** Other codings below a final chunked: the body has an end, but cannot be decoded (RFC 9112 section 6.1). */
const UNKNOWN_CODING = /^(?:(?!chunked\b)[\w!#$%&'*+.^`|~-]+[ \t]*,[ \t]*)+chunked$/i

const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])

/** Reads the announced body, or refuses a framing that two servers could read differently (RFC 9112 section 6). */
export function bodyLength(
  method: string,
  httpVersion: string,
  headers: Readonly<Record<string, string | string[] | undefined>>,
): BodyLength | Refusal {
  if (httpVersion !== '1.1' && httpVersion !== '1.0')
    return ambiguousFraming('This is neither HTTP/1.1 nor HTTP/1.0.')
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (coding === undefined && length === undefined) return 0
  if (length !== undefined && coding !== undefined)
    return ambiguousFraming('Send Content-Length or Transfer-Encoding, not both.')
  if (coding !== undefined && (httpVersion !== '1.1' || String(coding).toLowerCase() !== 'chunked')) {
    const code =
      httpVersion === '1.1' && UNKNOWN_CODING.test(String(coding)) ? 'NotImplemented' : 'BadRequest'
    return ambiguousFraming('The only Transfer-Encoding accepted is "chunked", in HTTP/1.1.', code)
  }
  if (length !== undefined && !/^(?:0|[1-9]\d{0,14})$/.test(String(length)))
    return ambiguousFraming('The Content-Length is no plain number.')
  const bytes = length === undefined ? undefined : Number(length)
  if (bytes !== 0 && BODILESS.has(method))
    return ambiguousFraming(`A ${method} request carries no body here.`)
  return bytes
}

export function tooLarge(maxBody: number): Refusal {
  return new Refusal('PayloadTooLarge', `A request body has at most ${maxBody} bytes here.`)
}

const BROKEN = 'broken'
const broken = new WeakMap<IncomingMessage, Refusal>()

/** Reports to `onBodyAborted` that the rest of a body will not come; the first reason stands. */
export function abortBody(request: IncomingMessage, reason: Refusal): void {
  if (broken.has(request)) return
  broken.set(request, reason)
  request.emit(BROKEN, reason)
}

/** Calls back once when a body breaks off: at once if it has already, so that no break falls between two phases. */
export function onBodyAborted(request: IncomingMessage, act: (reason: Refusal) => void): void {
  const reason = broken.get(request)
  if (reason === undefined) request.once(BROKEN, act)
  else act(reason)
}

/** The request of a socket whose body is still coming, if any. */
export function incompleteRequest(socket: Socket): IncomingMessage | undefined {
  const { parser } = socket as Socket & { parser?: { incoming: IncomingMessage | null } | null }
  return parser?.incoming?.complete === false ? parser.incoming : undefined
}

const PARSER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'HeaderFieldsTooLarge',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'PayloadTooLarge',
  ERR_HTTP_REQUEST_TIMEOUT: 'RequestTimeout',
}

/** Refuses a body that will not come to its end. The rest of it must not be taken for the next request. */
export function bodyRefusal(cause: string): Refusal {
  const message = 'The request body is malformed or too large, or broke off.'
  return new Refusal(PARSER_ERRORS[cause] ?? 'BadRequest', message, {
    cause,
    headers: { Connection: 'close' },
  })
}
