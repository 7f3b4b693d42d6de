import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Refusal, serviceUnavailable } from '../errors.ts'
import { networkOf } from '../runtime/address.ts'
import { createSlots } from '../runtime/slots.ts'
import { abortBody, bodyRefusal, onBodyAborted, tooLarge } from './body.ts'

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
      abortBody(oldest, serviceUnavailable('Too many requests are being read. Try again.'))
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
export function readBody(response: ServerResponse, maxBody: number, ip: string) {
  const { req: request } = response
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
        hold(Buffer.concat([buffer], size))
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
