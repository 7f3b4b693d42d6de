import type { IncomingMessage, ServerResponse } from 'node:http'
import { type ErrorCode, Refusal, ambiguousFraming } from '../errors.ts'
import { createSlots } from '../runtime/hot-path.ts'
import { networkOf } from './peers.ts'

/** Every value of three fields, of which Node keeps only the first or joins them. */
export interface Head {
  readonly hosts: readonly string[]
  readonly authorization: readonly string[]
  readonly proofs: readonly string[]
}

export const NO_HEAD: Head = { hosts: [], authorization: [], proofs: [] }

/** Collects every `Host`, `Authorization` and `DPoP` value. */
export function readHead(rawHeaders: readonly string[]): Head {
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

/** Bytes of body that a request announces: 0 for none, undefined for a chunked body. */
export type BodyLength = number | undefined

/** Other codings before a final chunked: the body has an end, but cannot be decoded (RFC 9112 section 6.1). */
const UNKNOWN_CODING = /^(?:(?!chunked\b)[\w!#$%&'*+.^`|~-]+[ \t]*,[ \t]*)+chunked$/i
export const BODILESS: ReadonlySet<unknown> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])

/** Returns the announced length, or refuses a framing that two servers could parse differently (RFC 9112 section 6). */
export function bodyLength(method: string, { httpVersion, headers }: IncomingMessage) {
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
  const bytes = length === undefined ? undefined : Number(length)
  if (bytes !== 0 && BODILESS.has(method))
    return ambiguousFraming(`A ${method} request carries no body here.`)
  return bytes
}

export const tooLarge = (maxBody: number): Refusal =>
  new Refusal('PayloadTooLarge', `A request body has at most ${maxBody} bytes here.`)

const ABORTED = 'bodyAborted'
const aborted = new WeakMap<IncomingMessage, Refusal>()

/** Reports to `onBodyAborted` that the rest of a body will not arrive; keeps the first reason. */
export function abortBody(request: IncomingMessage, reason: Refusal): void {
  if (aborted.has(request)) return
  aborted.set(request, reason)
  request.emit(ABORTED, reason)
}

/** Calls back once when a body is aborted: at once if it already was. */
export function onBodyAborted(request: IncomingMessage, act: (reason: Refusal) => void): void {
  const reason = aborted.get(request)
  if (reason === undefined) request.once(ABORTED, act)
  else act(reason)
}

const PARSER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'HeaderFieldsTooLarge',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'PayloadTooLarge',
  ERR_HTTP_REQUEST_TIMEOUT: 'RequestTimeout',
}

/** Refuses an aborted body, and closes the socket, so that the rest is not parsed as the next request. */
export function bodyRefusal(cause: string): Refusal {
  const message = 'The request body is malformed or too large, or broke off.'
  const headers = { Connection: 'close' }
  return new Refusal(PARSER_ERRORS[cause] ?? 'BadRequest', message, { cause, headers })
}

const EMPTY = Buffer.alloc(0)
const FIRST_BYTES = 4096
/**
 * Maximum bytes of whole bodies in this process, and of those of one address: at least one body of
 * the largest `maxBody`.
 */
const MAX_HELD = 64 * 1024 ** 2
const MAX_HELD_EACH = MAX_HELD / 4
/** Timeout of a body, in milliseconds: it has at most 10 MB. */
const READ_MS = 10_000

const held = createSlots(MAX_HELD, MAX_HELD_EACH)
/** Requests whose bodies are being read, oldest first, and the networks of their callers. */
const unfinished = new Map<IncomingMessage, string>()

/**
 * Aborts the oldest unfinished bodies, of the same network if it exceeds its share, until `more`
 * bytes fit. Returns false if that aborts the body itself.
 */
function makeRoom(request: IncomingMessage, network: string, more: number): boolean {
  while (unfinished.has(request) && !held.isFree(network, more)) {
    const isOver = held.of(network) + more > MAX_HELD_EACH
    for (const [oldest, other] of unfinished) {
      if (isOver && other !== network) continue
      // Close, rather than wait for the rest of the body.
      const headers = { 'Retry-After': '1', Connection: 'close' }
      const message = 'Too many requests are being read. Try again.'
      abortBody(oldest, new Refusal('ServiceUnavailable', message, { headers }))
      break
    }
  }
  return unfinished.has(request)
}

/**
 * Reads the whole body of a request from the address `ip`. Resolves to a 413 above `maxBody` bytes,
 * a 408 after a timeout, a 503 if bodies hold too many bytes, the reason of an abort, or undefined
 * if the caller disconnects. It counts as held until `response` is closed.
 */
export function readBody(request: IncomingMessage, response: ServerResponse, maxBody: number, ip: string) {
  return new Promise<Buffer | Refusal | undefined>((resolve) => {
    const network = networkOf(ip)
    // One buffer: a body may arrive in as many chunks as it has bytes.
    let buffer: Buffer = EMPTY
    let bytes = 0
    const hold = (next: Buffer): void => {
      held.take(network, next.length - buffer.length)
      buffer = next
    }
    const settle = (result?: Buffer | Refusal): void => {
      if (!unfinished.delete(request)) return
      clearTimeout(timer)
      request.off('data', onData)
      if (!Buffer.isBuffer(result)) hold(EMPTY)
      resolve(result)
    }
    const onData = (chunk: Buffer): void => {
      const end = bytes + chunk.length
      if (end > maxBody) return abortBody(request, tooLarge(maxBody))
      if (end > buffer.length) {
        const size = Math.min(maxBody, Math.max(end, 2 * buffer.length, FIRST_BYTES))
        if (!makeRoom(request, network, size - buffer.length)) return
        const larger = Buffer.allocUnsafe(size)
        buffer.copy(larger, 0, 0, bytes)
        hold(larger)
      }
      chunk.copy(buffer, bytes)
      bytes = end
    }
    unfinished.set(request, network)
    const late = bodyRefusal('ERR_HTTP_REQUEST_TIMEOUT')
    const timer = setTimeout(abortBody, READ_MS, request, late).unref()
    request.on('data', onData)
    request.on('end', () => settle(buffer.subarray(0, bytes)))
    request.on('close', () => settle())
    response.once('close', () => hold(EMPTY))
    onBodyAborted(request, settle)
  })
}
