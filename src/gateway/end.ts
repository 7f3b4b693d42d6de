import { withoutKeys } from '../authenticate/key/key-text.ts'
import { Failure } from '../errors.ts'
import type { Quota } from '../limit/quota.ts'
import type { Exchange, GatewayDeps } from './exchange.ts'

/**
 * Ends the leases of a call, later if its caller ended it while the upstream works. Charges the call
 * what it used, and nothing to limits with `count: success` if it failed.
 */
export function endCall({ limiter }: GatewayDeps, exchange: Exchange): void {
  const { decision, quotas, forwarded, settlement } = exchange
  if (decision?.lease !== undefined) limiter.release(quotas, decision, mayGoOn(exchange))
  if (decision?.admitted !== true) return
  const failed = hasFailed(exchange)
  if (settlement !== undefined) {
    settlement.end({
      hasFailed: failed,
      obstacle: obstacleOf(exchange),
      request: forwarded?.body?.length ?? forwarded?.streamedBytes ?? 0,
      response: forwarded?.bytes ?? 0,
    })
    exchange.decision = settlement.decision
  } else if (failed && quotas.some(({ countsSuccess }) => countsSuccess)) {
    limiter.settle(quotas, decision, refundSuccess)
  }
}

/** A failed call uses nothing of a limit with `count: success`. */
const refundSuccess = ({ countsSuccess }: Quota): number | undefined => (countsSuccess ? 0 : undefined)

/**
 * True for a call whose response failed: a status of 400 or above, or cut off by the upstream or
 * the gateway. A caller that disconnects after its request was sent has had its call: it could
 * otherwise make any number of calls.
 */
function hasFailed({ status, error, incomplete, forwarded }: Exchange): boolean {
  // A WebSocket that was opened is a call that succeeded, even if it ends with an error.
  const isOpened = status === 101
  // An error below 500 is the caller's: one that sends a bad body must not get the call back.
  const isAnswered = isOpened || (status > 0 && status < 400 && (error === undefined || error.status < 500))
  const hasLeft = incomplete === 'left' && forwarded?.stage === 'response'
  return !isAnswered && !hasLeft
}

/** Returns why the body of a response cannot say what a call used; undefined if it is complete. */
function obstacleOf({ incomplete, source, status }: Exchange): string | undefined {
  if (incomplete === 'left') return 'the caller left'
  if (incomplete === 'cut') return 'the response was cut'
  return source === 'upstream' ? undefined : `the gateway itself answered ${status}`
}

/**
 * True if the caller ended a call that the upstream may go on with: it left, or its body was bad or
 * too late. Few upstreams notice that their caller is gone; a caller that makes calls and leaves
 * could otherwise have any number in progress there.
 */
function mayGoOn({ error, incomplete, forwarded }: Exchange): boolean {
  const isByCaller = incomplete === 'left' || (error !== undefined && error.status < 500)
  return isByCaller && forwarded?.stage === 'response'
}

/** Returns the path of a call as it may be shown; undefined if it has none. */
function shownPath({ keys, showPath }: GatewayDeps, { path, route }: Exchange): string | undefined {
  if (path === undefined) return undefined
  const keyless = keys === undefined ? path : withoutKeys(path)
  return showPath === undefined ? keyless : showPath(keyless, route)
}

/** Records how and when the response ended, and the path that may be shown, for log and metrics. */
export function recordEnd(deps: GatewayDeps, exchange: Exchange): void {
  const { response, forwarded, refusal, decision } = exchange
  const { headersSent } = response
  // Set by the server if it ended the response.
  const cut = response.errored instanceof Failure ? response.errored.refusal : undefined
  exchange.endedAt = performance.now()
  exchange.path = shownPath(deps, exchange)
  if (refusal === undefined && forwarded !== undefined && headersSent) exchange.source = 'upstream'
  exchange.status = refusal?.status ?? (headersSent ? response.statusCode : (cut?.status ?? 0))
  exchange.error = cut ?? forwarded?.error ?? (decision?.admitted === false ? undefined : refusal)
  if (cut !== undefined || forwarded?.outcome === 'cut') exchange.incomplete = 'cut'
  // The response of a WebSocket is never finished.
  else if (!response.writableFinished && forwarded?.outcome !== 'answered') exchange.incomplete = 'left'
}
