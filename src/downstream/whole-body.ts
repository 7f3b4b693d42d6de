import type { IncomingMessage, ServerResponse } from 'node:http'
import { Refusal } from '../errors.ts'
import { bodyRefusal, onBodyAborted, tooLarge } from './body.ts'
import { networkOf } from './trusted-proxies.ts'

const EMPTY = Buffer.alloc(0)
const FIRST_BYTES = 4096
/** Maximum bytes that whole bodies hold together in this process, and those of one address: at least one of the largest `maxBody`. */
const MAX_HELD = 64 * 1024 ** 2
const MAX_HELD_EACH = MAX_HELD / 4
/** Time for a body to come, in milliseconds: it has at most 10 MB, and an honest one comes in a second. */
const READ_MS = 10_000

/** The bodies of one address, or of one /64 of IPv6. */
interface Sender {
  heldBytes: number
  readonly unfinished: Set<Reading>
}

interface Reading {
  readonly sender: Sender
  end(refusal: Refusal): void
}

const senders = new Map<string, Sender>()
/** All bodies that are still coming, in the order in which they began. */
const unfinished = new Set<Reading>()
let heldBytes = 0

/**
 * Makes room for more bytes of a body: while there is none, ends the unfinished body that began first, of the same address if that
 * has used its part. Returns false if the body itself was ended, or if there is none to end.
 */
function makeRoom(reading: Reading, more: number): boolean {
  const { sender } = reading
  for (;;) {
    const isOver = sender.heldBytes + more > MAX_HELD_EACH
    if (!isOver && heldBytes + more <= MAX_HELD) return true
    const [first] = isOver ? sender.unfinished : unfinished
    first!.end(busy())
    if (first === reading) return false
  }
}

function busy(): Refusal {
  // The rest of its body is not awaited.
  const headers = { 'Retry-After': '1', Connection: 'close' }
  return new Refusal('ServiceUnavailable', 'Too many requests are being read. Try again.', { headers })
}

/**
 * Reads the whole body of a request from the address `ip`. Returns a 413 as soon as it has more than `maxBody` bytes, a 408 after
 * `readMs`, a 503 if bodies hold too many bytes, the reason if it breaks off, undefined if the caller has left. The body counts as held
 * until `response` is closed. Never rejects.
 */
export function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBody: number,
  ip: string,
  readMs = READ_MS,
): Promise<Buffer | Refusal | undefined> {
  return new Promise((resolve) => {
    const network = networkOf(ip)
    const sender = senders.get(network) ?? { heldBytes: 0, unfinished: new Set() }
    senders.set(network, sender)
    // One buffer for all: a body may come in as many chunks as it has bytes.
    let held: Buffer = EMPTY
    let bytes = 0
    const hold = (buffer: Buffer): void => {
      heldBytes += buffer.length - held.length
      sender.heldBytes += buffer.length - held.length
      held = buffer
      const isEmpty = sender.heldBytes === 0 && sender.unfinished.size === 0
      if (isEmpty && senders.get(network) === sender) senders.delete(network)
    }
    const settle = (result: Buffer | Refusal | undefined): void => {
      clearTimeout(timer)
      request.off('data', onData).off('end', onEnd).off('close', onClose)
      unfinished.delete(reading)
      sender.unfinished.delete(reading)
      hold(Buffer.isBuffer(result) ? held : EMPTY)
      resolve(result)
    }
    const onData = (chunk: Buffer): void => {
      const before = bytes
      bytes += chunk.length
      if (bytes > maxBody) return settle(tooLarge(maxBody))
      if (bytes > held.length) {
        const size = Math.min(maxBody, Math.max(bytes, 2 * held.length, FIRST_BYTES))
        if (!makeRoom(reading, size - held.length)) return
        const larger = Buffer.allocUnsafe(size)
        held.copy(larger, 0, 0, before)
        hold(larger)
      }
      chunk.copy(held, before)
    }
    const onEnd = (): void => settle(held.subarray(0, bytes))
    const onClose = (): void => settle(undefined)
    const reading: Reading = { sender, end: settle }
    const timer = setTimeout(() => settle(bodyRefusal('ERR_HTTP_REQUEST_TIMEOUT')), readMs).unref()
    unfinished.add(reading)
    sender.unfinished.add(reading)
    request.on('data', onData).on('end', onEnd).on('close', onClose)
    response.once('close', () => hold(EMPTY))
    onBodyAborted(request, settle)
  })
}
