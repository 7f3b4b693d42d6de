import { UnorderedList } from '../runtime/unordered-list.ts'
import type { UpstreamRequest } from './request.ts'

/** Check interval: a timeout fires at most this much late. */
const TICK_MS = 40

/**
 * Ends requests to an upstream that make no progress, with one timer, which runs while there are
 * any. The timeouts of a request:
 * - `timeout` of the upstream or the route (30 s): without a head 504, without a free socket 503, while connecting 502;
 *   between the bytes of a body, the response is cut.
 * - `connectTimeout` (2 s) of each address (addresses.ts): the next address, then 502.
 * - A full queue (wait-queue.ts): 503 at once.
 * - `SLOW_READER_MS` (200 s) of a caller that reads nothing (server.ts): its socket is closed.
 * - `listen.requestTimeout` (60 s) of a caller that stops sending, or sends too slowly (slow-uploads.ts): 408.
 */
export function createTimeouts() {
  const requests = new UnorderedList<UpstreamRequest>()
  let timer: NodeJS.Timeout | undefined

  function sweep(): void {
    const now = performance.now()
    requests.forEach((request) => request.checkProgress(now))
    if (requests.size > 0) return
    clearInterval(timer)
    timer = undefined
  }

  return {
    add(request: UpstreamRequest): void {
      requests.add(request)
      timer ??= setInterval(sweep, TICK_MS)
    },
    delete: (request: UpstreamRequest): void => requests.delete(request),
    /** Counts the requests that were sent and wait for a head, and the open WebSockets. */
    waits() {
      const now = performance.now()
      let waiting = 0
      let oldestMs = 0
      let webSockets = 0
      requests.forEach(({ headAt, waitsFor, silentSince, isSwitched }) => {
        if (isSwitched) webSockets++
        if (headAt !== undefined || waitsFor !== 'response') return
        waiting++
        oldestMs = Math.max(oldestMs, now - silentSince)
      })
      return { waiting, oldestWaitSeconds: oldestMs / 1000, webSockets }
    },
  }
}
