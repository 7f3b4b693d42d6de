import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import { responseHeaders } from '../downstream/head.ts'
import { lingerOnClose } from '../downstream/graceful-close.ts'

/** What becomes known of an answer on its way back. */
export interface AnswerEvents {
  /** Something came from the upstream, or the caller took something. */
  onProgress(): void
  /** Its body broke off. */
  onBroken(error: Error): void
  /** Its head cannot be passed on; nothing was. */
  onUnfit(error: Error): void
  /** Is the request over, so that nothing more may be written? */
  isOver(): boolean
}

/** An answer on its way back. */
export interface Answer {
  /** Has the caller been given its head? */
  begun(): boolean
}

/** Characters that a reason phrase must not carry (RFC 9112 section 4). */
const BAD_REASON = /[^\t\u0020-\u007e\u0080-\u00ff]/

/** What is wrong with a head that can be parsed. */
export function faultOf({ statusCode, httpVersionMajor, headers }: IncomingMessage): string | undefined {
  if (statusCode! < 200) return `the upstream answered ${statusCode} unasked`
  if (httpVersionMajor !== 1) return `the upstream answered in HTTP/${httpVersionMajor}`
  // Without TE in the request, nothing but this (RFC 9112 section 7.4).
  const coding = headers['transfer-encoding']
  if (coding === undefined || coding.toLowerCase() === 'chunked') return undefined
  return `the upstream answered in the coding ${coding.slice(0, 100)}`
}

/** Streams an upstream's answer to the caller, as fast as that reads; one that is cut is never completed. */
export function passBack(
  incoming: IncomingMessage,
  request: IncomingMessage,
  response: ServerResponse,
  rateLimit: readonly string[] | undefined,
  { onProgress, onBroken, onUnfit, isOver }: AnswerEvents,
): Answer {
  const status = incoming.statusCode!
  let begun = false

  const begin = (): boolean => {
    if (begun || isOver()) return begun
    clearImmediate(flushing)
    const reason = incoming.statusMessage ?? ''
    const headers = responseHeaders(incoming.rawHeaders, incoming.headers.connection, status, rateLimit)
    // The rest of an unfinished request must not be taken for the next one.
    if (!request.complete) {
      headers.push('Connection', 'close')
      if (response.socket) lingerOnClose(response.socket)
    }
    try {
      if (reason === STATUS_CODES[status] || reason === '' || BAD_REASON.test(reason))
        response.writeHead(status, headers)
      else response.writeHead(status, reason, headers)
      begun = true
    } catch (error) {
      onUnfit(error as Error)
    }
    return begun
  }
  // The head waits for the bytes that come with it: where they are broken, it can still be a 502.
  const flushing = setImmediate(() => {
    if (!isOver() && begin()) response.flushHeaders()
  })

  incoming.on('error', onBroken)
  incoming.on('close', () => {
    clearImmediate(flushing)
    if (!incoming.complete) onBroken(new Error('the answer was cut'))
  })
  if (request.method === 'HEAD' || status === 204 || status === 304) {
    // Whole with its head, whatever an upstream sends behind it.
    if (begin()) response.end()
    incoming.resume()
    return { begun: () => begun }
  }
  const length = Number(incoming.headers['content-length'])
  incoming.on('data', (chunk: Buffer) => {
    onProgress()
    if (!begin()) return
    // Most answers are one chunk, and so one write.
    if (chunk.length === length) response.end(chunk)
    else if (!response.write(chunk)) incoming.pause()
  })
  incoming.on('end', () => {
    if (isOver()) return
    // `end` also comes for a body that was cut; only `complete` tells them apart.
    if (!incoming.complete) onBroken(new Error('the answer was cut'))
    else if (begin() && !response.writableEnded) response.end()
  })
  response.on('drain', () => {
    onProgress()
    incoming.resume()
  })
  return { begun: () => begun }
}
