import { Failure } from '../errors.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'

/**
 * Ends the leases of a call, later if its caller ended it while the upstream works, and refunds the
 * call to limits with `count: success` if the response failed: a status of 400 or above, or cut off
 * by the upstream or the gateway. A caller that disconnects after its request was sent gets no
 * refund: it could otherwise make any number of calls.
 */
export function endCall({ limiter }: GatewayDeps, exchange: Exchange): void {
  const { decision, quotas, status, error, incomplete, forwarded } = exchange
  if (decision?.lease !== undefined) limiter.release(quotas, decision, mayGoOn(exchange))
  // A caller that sends a bad body must not get the call back.
  // A WebSocket that was opened is a call that succeeded, however it ends.
  const isOpened = status === 101
  const isAnswered = isOpened || (status > 0 && status < 400 && (error === undefined || error.status < 500))
  const hasLeft = incomplete === 'left' && forwarded?.waitsFor === 'response'
  if (isAnswered || hasLeft || decision?.admitted !== true) return
  if (quotas.some(({ countsSuccess }) => countsSuccess)) limiter.giveBack(quotas, decision)
}

/**
 * True if the caller ended a call that the upstream may go on with: it left, or its body was bad or
 * too late. Few upstreams notice that their caller is gone; a caller that makes calls and leaves
 * could otherwise have any number in progress there.
 */
function mayGoOn({ error, incomplete, forwarded }: Exchange): boolean {
  const isByCaller = incomplete === 'left' || (error !== undefined && error.status < 500)
  return isByCaller && forwarded?.waitsFor === 'response'
}

/** Records how and when the response ended, and the path that may be shown, for log and metrics. */
export function recordEnd({ showPath }: GatewayDeps, exchange: Exchange): void {
  const { response, forwarded, refusal, decision } = exchange
  const { headersSent } = response
  // Set by the server if it ended the response.
  const cut = response.errored instanceof Failure ? response.errored.refusal : undefined
  exchange.endedAt = performance.now()
  if (showPath !== undefined && exchange.path !== undefined)
    exchange.path = showPath(exchange.path, exchange.route)
  if (refusal === undefined && forwarded !== undefined && headersSent) exchange.source = 'upstream'
  exchange.status = refusal?.status ?? (headersSent ? response.statusCode : (cut?.status ?? 0))
  exchange.error = cut ?? forwarded?.error ?? (decision?.admitted === false ? undefined : refusal)
  if (cut !== undefined || forwarded?.outcome === 'cut') exchange.incomplete = 'cut'
  // The response of a WebSocket is never finished.
  else if (!response.writableFinished && forwarded?.outcome !== 'answered') exchange.incomplete = 'left'
}
