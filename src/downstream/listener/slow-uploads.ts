import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { incompleteRequest, responseOf } from '../../runtime/node-http.ts'
import { abortBody, bodyRefusal } from '../body.ts'

const SWEEP_MS = 1000
/** Minimum average rate of a body, in bytes a second: with `maxBody`, it bounds the time of an upload. */
const MIN_RATE = 4096

/** The body of a request that is incomplete. */
interface Upload {
  /** Bytes of its socket when it was first seen, and at the last sweep. */
  readonly bytesBefore: number
  bytesRead: number
  /** Milliseconds without a byte, and in total, in which the gateway read what came. */
  silentMs: number
  readMs: number
}

/**
 * Refuses bodies that send no byte for `maxSilentMs`, and those whose average rate is below 4 kB
 * a second after `slowAfterMs`. Time in which the gateway or its upstream does not read is not the
 * caller's: the socket is paused, or an earlier request of it has no response yet. Returns its timer.
 */
export function abortSlowUploads(
  sockets: ReadonlySet<Socket>,
  maxSilentMs: number,
  slowAfterMs: number,
): NodeJS.Timeout {
  const uploads = new WeakMap<IncomingMessage, Upload>()
  let sweptAt = performance.now()
  return setInterval(() => {
    const now = performance.now()
    // While this process was busy, bytes may have come that it has not read.
    const passedMs = Math.min(now - sweptAt, 2 * SWEEP_MS)
    sweptAt = now
    for (const socket of sockets) {
      const request = incompleteRequest(socket)
      if (request === undefined) continue
      const { bytesRead } = socket
      const upload = uploads.get(request)
      if (upload === undefined) {
        uploads.set(request, { bytesBefore: bytesRead, bytesRead, silentMs: 0, readMs: 0 })
        continue
      }
      const isRead = !socket.isPaused() && responseOf(socket)?.req === request
      if (isRead) upload.readMs += passedMs
      upload.silentMs = isRead && bytesRead === upload.bytesRead ? upload.silentMs + passedMs : 0
      upload.bytesRead = bytesRead
      if (upload.silentMs >= maxSilentMs || isSlow(upload, slowAfterMs))
        abortBody(request, bodyRefusal('ERR_HTTP_REQUEST_TIMEOUT'))
    }
  }, SWEEP_MS).unref()
}

const isSlow = ({ bytesBefore, bytesRead, readMs }: Upload, slowAfterMs: number): boolean =>
  readMs >= slowAfterMs && (bytesRead - bytesBefore) * 1000 < MIN_RATE * readMs
