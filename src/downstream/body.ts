import type { IncomingMessage } from 'node:http'
import { type ErrorCode, Refusal } from '../errors.ts'

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

/**
 * Waits for the first byte of a chunked body, or its end. Resolves to true if the body has a byte, to
 * false if it is empty or the caller has disconnected, to a refusal if it is aborted.
 */
export function hasChunks(request: IncomingMessage): Promise<boolean | Refusal> {
  return new Promise((resolve) => {
    const settle = (): void => {
      request.off('readable', settle)
      request.off('close', settle)
      const isEmpty = request.readableLength === 0
      // Ends the request, which is read to its end already.
      if (isEmpty) request.resume()
      resolve(!isEmpty)
    }
    request.on('readable', settle)
    request.on('close', settle)
    onBodyAborted(request, resolve)
  })
}

const PARSER_ERRORS: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'HeaderFieldsTooLarge',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'PayloadTooLarge',
  ERR_HTTP_REQUEST_TIMEOUT: 'RequestTimeout',
}

/** Refuses an aborted body; `writeReply` closes the socket, so that the rest is not parsed. */
export function bodyRefusal(cause: string): Refusal {
  const message = 'The request body is malformed or too large, or broke off.'
  return new Refusal(PARSER_ERRORS[cause] ?? 'BadRequest', message, { cause })
}
