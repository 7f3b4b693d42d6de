import type { IncomingMessage } from 'node:http'
import { GatewayError } from './errors.ts'

const FIRST_BYTES = 4096

/**
 * Reads a request's body as it came: 413 as soon as it has more than `maxBody` bytes, the reason where it breaks off,
 * undefined where nobody is left to be told. Never rejects.
 */
export function readBody(
  request: IncomingMessage,
  maxBody: number,
): Promise<Buffer | GatewayError | undefined> {
  return new Promise((resolve) => {
    // One buffer for all: a body may come in as many chunks as it has bytes.
    let held = Buffer.allocUnsafe(Math.min(FIRST_BYTES, maxBody))
    let bytes = 0
    const settle = (result: Buffer | GatewayError | undefined): void => {
      request.off('data', onData).off('end', onEnd).off('close', onClose)
      resolve(result)
    }
    const onData = (chunk: Buffer): void => {
      const before = bytes
      bytes += chunk.length
      if (bytes > maxBody) {
        settle(tooLarge(maxBody))
        return
      }
      if (bytes > held.length) {
        const larger = Buffer.allocUnsafe(Math.min(maxBody, Math.max(bytes, 2 * held.length)))
        held.copy(larger, 0, 0, before)
        held = larger
      }
      chunk.copy(held, before)
    }
    const onEnd = (): void => settle(held.subarray(0, bytes))
    const onClose = (): void => settle(undefined)
    request.on('data', onData).on('end', onEnd).on('close', onClose)
    onBreak(request, settle)
  })
}

/** 413: a body has more bytes than are taken. */
export function tooLarge(maxBody: number): GatewayError {
  return new GatewayError('PayloadTooLarge', `A request body has at most ${maxBody} bytes here.`)
}

const BROKEN = 'broken'
const broken = new WeakMap<IncomingMessage, GatewayError>()

/** Tells whoever waits for the rest of a body that it will not come; the first reason stands. */
export function breakOff(request: IncomingMessage, reason: GatewayError): void {
  if (broken.has(request)) return
  broken.set(request, reason)
  request.emit(BROKEN, reason)
}

/** Calls back once when a body breaks off: at once where it has already, so that no break falls between two stages. */
export function onBreak(request: IncomingMessage, tell: (reason: GatewayError) => void): void {
  const reason = broken.get(request)
  if (reason === undefined) request.once(BROKEN, tell)
  else tell(reason)
}
