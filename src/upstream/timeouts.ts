import { UnorderedList } from '../runtime/unordered-list.ts'
import { Refusal } from '../errors.ts'
import type { UpstreamRequest } from './request.ts'

/** Check interval: a timeout fires at most this much late. */
const TICK_MS = 40

/**
 * Ends requests to an upstream that make no progress, with one timer, which runs while there are any. The timeouts of a request:
 * - `timeout` of the upstream or the route (30 s): without a head 504, without a free socket 503, while connecting 502;
 *   between the bytes of a body, the response is cut.
 * - `connectTimeout` (2 s) of each address (connect.ts): the next address, then 502. A full queue (connections.ts): 503 at once.
 * - `SLOW_READER_MS` (200 s) of a caller that reads nothing: its socket is closed. `listen.requestTimeout` (60 s) of a caller
 *   that is still sending (server.ts): 408.
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

/** Ends a request without progress, unless it waits for the caller. */
function onSilence(silent: UpstreamRequest): void {
  const { request, response, clientRequest, socketRequested, timeoutMs, backend } = silent
  // `listen.requestTimeout` applies to a caller that is still sending.
  const waitsForCaller = silent.streamed && !request.complete && clientRequest?.writableNeedDrain !== true
  if (silent.headAt === undefined && waitsForCaller) return
  // The response waits for a caller that reads none of it, or too little for the system to report.
  if (response.headersSent && (response.writableNeedDrain || response.writableEnded)) {
    silent.stalledMs += timeoutMs
    if (silent.stalledMs < backend.slowReaderMs) return
    silent.timedOut = `the caller read too little for ${silent.stalledMs} ms`
    silent.settle('left')
  } else if (socketRequested && !silent.hasSlot) silent.failBusy()
  else if (socketRequested && !clientRequest?.socket) {
    silent.failGateway(new Error(`no connection within ${timeoutMs} ms`))
  } else {
    silent.failAddress(new Error(`silent for ${timeoutMs} ms`))
    const cause = `${backend.name} was silent for ${timeoutMs} ms`
    silent.fail(new Refusal('GatewayTimeout', 'The upstream did not answer in time.', { cause }))
  }
}
