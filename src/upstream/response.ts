import { type IncomingMessage, STATUS_CODES } from 'node:http'
import { callAtIterationEnd } from '../runtime/batch.ts'
import { appendFields, endWithBody } from '../runtime/node-http.ts'
import { toError } from '../runtime/to-error.ts'
import { readResponseHead, type ResponseHead } from './response-head.ts'
import type { UpstreamRequest } from './request.ts'

/** Characters that a reason phrase must not contain (RFC 9112 section 4). */
const BAD_REASON = /[^\t\u0020-\u007e\u0080-\u00ff]/

/** Maximum bytes of a body that is joined with its head into one string. */
const MAX_TEXT = 15 * 1024
const NO_BODY = Buffer.alloc(0)
const CUT = new Error('the answer was cut')

/** Streams an upstream's response to the caller with back-pressure; one that is cut is never completed. */
export function streamResponse(incoming: IncomingMessage, upstreamRequest: UpstreamRequest): void {
  const { request, clientRequest, outgoing } = upstreamRequest
  const { statusCode: status = 0, httpVersionMajor, rawHeaders } = incoming
  if (upstreamRequest.settled) return
  const head = readResponseHead(rawHeaders, status, outgoing)
  const fault = faultOf(status, httpVersionMajor, head.transferEncoding)
  if (fault !== undefined) return upstreamRequest.onError(new Error(fault))
  upstreamRequest.isBodiless = request.method === 'HEAD' || status === 204 || status === 304
  if (endsConnection(status, head, upstreamRequest)) clientRequest!.shouldKeepAlive = false
  upstreamRequest.onHead(incoming, head.keepAliveMs)
  // The head waits for the bytes that come with it: if they are malformed, a 502 is still possible.
  callAtIterationEnd(() => begin(incoming, upstreamRequest, head))
}

/** Returns why a response cannot be forwarded; undefined if it can. */
function faultOf(status: number, httpVersionMajor: number, coding: string | undefined): string | undefined {
  if (status < 200) return `the upstream answered ${status} unasked`
  if (httpVersionMajor !== 1) return `the upstream answered in HTTP/${httpVersionMajor}`
  // The request had no TE field, so chunked is the only coding allowed (RFC 9112 section 7.4).
  if (coding !== undefined && coding.toLowerCase() !== 'chunked')
    return `the upstream answered in the coding ${coding.slice(0, 100)}`
  return undefined
}

/** True if no request may follow on the connection of a response. */
function endsConnection(
  status: number,
  { contentLength = 0, transferEncoding, isConnectionBound }: ResponseHead,
  { isBodiless, outgoing }: UpstreamRequest,
): boolean {
  // The announced body may still come, and would be parsed as the next response.
  if (isBodiless && (transferEncoding !== undefined || contentLength > 0)) return true
  // A server that refuses a request may not have read its body, in which the next request would begin.
  if (status >= 400 && outgoing.bodyLength !== 0) return true
  // The next request could be another caller's.
  return isConnectionBound
}

/**
 * Begins the response to the caller, and ends it if the body is complete, as with most responses:
 * no stream events are needed then.
 */
function begin(incoming: IncomingMessage, upstreamRequest: UpstreamRequest, head: ResponseHead) {
  const { response } = upstreamRequest
  if (!incoming.complete && incoming.destroyed) return upstreamRequest.onError(incoming.errored ?? CUT)
  if (upstreamRequest.settled) return
  if (!writeHead(incoming, upstreamRequest, readBy(incoming, upstreamRequest, head))) return
  if (upstreamRequest.isBodiless) {
    // These responses have no body; ignore what the upstream sends after the head.
    response.end()
    incoming.resume()
  } else if (incoming.complete) {
    const body = (incoming.read() as Buffer | null) ?? NO_BODY
    upstreamRequest.bytes = body.length
    upstreamRequest.outgoing.reader?.readChunk(body)
    if (body.length === head.contentLength && body.length <= MAX_TEXT)
      endWithBody(response, body.toString('latin1'))
    else response.end(body)
  } else {
    streamBody(incoming, upstreamRequest)
    // Emits the bytes that have come, which are sent with the head.
    if (incoming.read() === null) response.flushHeaders()
  }
}

/** Returns the head with the fields of limits that its reader knows. */
function readBy(
  { rawHeaders, statusCode: status = 0 }: IncomingMessage,
  { outgoing, isBodiless }: UpstreamRequest,
  head: ResponseHead,
): ResponseHead {
  const rateLimit = outgoing.reader?.readHead(status, rawHeaders, isBodiless)
  return rateLimit === undefined ? head : readResponseHead(rawHeaders, status, { ...outgoing, rateLimit })
}

/** Returns false if the head holds something that cannot be sent. */
function writeHead(incoming: IncomingMessage, upstreamRequest: UpstreamRequest, head: ResponseHead) {
  const { request, response } = upstreamRequest
  const { statusCode: status = 0, statusMessage: reason = '' } = incoming
  // The rest of an unfinished request must not be parsed as the next one.
  if (!request.complete) head.framing.push('Connection', 'close')
  try {
    const isBad = reason === '' || BAD_REASON.test(reason)
    response.writeHead(status, isBad ? STATUS_CODES[status] : reason, head.framing)
    appendFields(response, head.headers)
    return true
  } catch (error) {
    upstreamRequest.failGateway(toError(error), 'The upstream broke off.')
    return false
  }
}

function streamBody(incoming: IncomingMessage, upstreamRequest: UpstreamRequest): void {
  const { response, outgoing } = upstreamRequest
  const { reader } = outgoing
  incoming.on('error', (error) => upstreamRequest.onError(error))
  incoming.on('close', () => {
    if (!incoming.complete) upstreamRequest.onError(CUT)
  })
  incoming.on('data', (chunk: Buffer) => {
    upstreamRequest.silentSince = performance.now()
    if (upstreamRequest.settled) return
    upstreamRequest.bytes += chunk.length
    reader?.readChunk(chunk)
    if (response.write(chunk)) return
    incoming.pause()
    response.once('drain', () => {
      upstreamRequest.silentSince = performance.now()
      incoming.resume()
    })
  })
  incoming.on('end', () => {
    // `end` also comes for a truncated body, before its `close`; only `complete` distinguishes them.
    if (incoming.complete && !upstreamRequest.settled) response.end()
  })
}
