import { createSlots } from '../runtime/slots.ts'
import type { UpstreamRequest } from './request.ts'

/**
 * Counts the sockets of one upstream, at most `max`, by the callers of their requests. One caller has at most half of the sockets. Requests whose body is still coming have
 * at most half of the sockets, and one caller half of those; the same applies to WebSockets.
 */
export function createSocketSlots(max: number) {
  const half = Math.ceil(max / 2)
  const all = createSlots(max, half)
  const uploads = createSlots(half, Math.ceil(half / 2))
  const webSockets = createSlots(half, Math.ceil(half / 2))

  function isFree({ uploading, outgoing: { caller, isHandshake } }: UpstreamRequest): boolean {
    if (!all.isFree(caller) || (uploading && !uploads.isFree(caller))) return false
    return !isHandshake || webSockets.isFree(caller)
  }

  return {
    /** Takes the slots that a request needs; returns false if one of them is not free. */
    take(request: UpstreamRequest): boolean {
      if (!isFree(request)) return false
      const { caller, isHandshake } = request.outgoing
      all.take(caller)
      if (request.uploading) uploads.take(caller)
      if (isHandshake) webSockets.take(caller)
      return true
    },

    /** Releases the slot of an upload, which keeps its socket. */
    releaseUpload: (request: UpstreamRequest): void => uploads.release(request.outgoing.caller),

    /** Releases all slots of a request. */
    release(request: UpstreamRequest): void {
      const { caller, isHandshake } = request.outgoing
      all.release(caller)
      if (isHandshake) webSockets.release(caller)
      if (request.uploading) uploads.release(caller)
    },
  }
}
