import { UnorderedList } from '../runtime/unordered-list.ts'
import { Refusal } from '../errors.ts'
import type { UpstreamRequest } from './request.ts'

/** A timeout comes late by as much at most. */
const TICK_MS = 40

/**
 * Bounds the silence of all requests to an upstream with one timer, which runs while there are any. What bounds a request:
 * - `timeout` of the upstream or the route (30 s): without a head 504, without a free socket 503, while connecting 502;
 *   between the bytes of a body, the answer is cut.
 * - `connectTimeout` (2 s) of each address (connect.ts): the next address, then 502. A full queue (connections.ts): 503 at once.
 * - `READ_MS` (200 s) of a caller that reads nothing: its socket is closed. `listen.requestTimeout` (60 s) of one that still
 *   sends (server.ts): 408.
 */
export function createTimeouts() {
  const requests = new UnorderedList<UpstreamRequest>()
  let timer: NodeJS.Timeout | undefined

  function sweep(): void {
    const now = performance.now()
    requests.forEach((request) => {
      if (now - request.silentSince < request.timeoutMs) return
      request.silentSince = now
      onSilence(request)
    })
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
  }
}

/** Ends a request unless the silence is the caller's. */
function onSilence(silent: UpstreamRequest): void {
  const { request, response, sent, asksForSocket, timeoutMs, backend } = silent
  // A caller that is still sending is bounded by `listen.requestTimeout`.
  const waitsForCaller = silent.streamed && !request.complete && sent?.writableNeedDrain !== true
  if (silent.headAt === undefined && waitsForCaller) return
  // What has come from the upstream waits for a caller that reads none of it, or too little for the system to report.
  if (response.headersSent && (response.writableNeedDrain || response.writableEnded)) {
    silent.unreadMs += timeoutMs
    if (silent.unreadMs < backend.readMs) return
    silent.timedOut = `the caller read too little for ${silent.unreadMs} ms`
    silent.settle('left')
  } else if (asksForSocket && !silent.hasSlot) silent.failBusy()
  else if (asksForSocket && !sent?.socket) {
    silent.failGateway(new Error(`no connection within ${timeoutMs} ms`))
  } else {
    silent.failAddress(new Error(`silent for ${timeoutMs} ms`))
    const cause = `${backend.name} was silent for ${timeoutMs} ms`
    silent.fail(new Refusal('GatewayTimeout', 'The upstream did not answer in time.', { cause }))
  }
}
