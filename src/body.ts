import type { IncomingMessage } from 'node:http'
import { GatewayError } from './errors.ts'

/**
 * Reads a request's body as it came: 413 as soon as it has more than `maxBody` bytes, undefined where it breaks off.
 * Never rejects.
 */
export function readBody(
  request: IncomingMessage,
  maxBody: number,
): Promise<Buffer | GatewayError | undefined> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    let bytes = 0
    const settle = (result: Buffer | GatewayError | undefined): void => {
      request.off('data', onData).off('end', onEnd).off('close', onClose)
      resolve(result)
    }
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length
      chunks.push(chunk)
      if (bytes > maxBody) settle(tooLarge(maxBody))
    }
    const onEnd = (): void => settle(Buffer.concat(chunks, bytes))
    const onClose = (): void => settle(undefined)
    request.on('data', onData).on('end', onEnd).on('close', onClose)
  })
}

/** 413: a body has more bytes than are taken. */
export function tooLarge(maxBody: number): GatewayError {
  return new GatewayError('PayloadTooLarge', `A request body has at most ${maxBody} bytes here.`)
}
