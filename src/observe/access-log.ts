import type { Exchange } from '../gateway/exchange.ts'
import { atCallbackEnd } from '../runtime/batch.ts'
import { accessLine, withOmitted } from './access-line.ts'
import type { Activity } from './activity/activity.ts'
import { keyOf } from './activity/latest-allowance.ts'
import type { LogOutput } from './log.ts'
import type { Metrics } from './metrics.ts'
import { createLogSampler } from './log-sampler.ts'

/** The status logged for a caller that left before a response began, as nginx writes it. */
const CALLER_LEFT = 499

/**
 * Counts finished requests and their times, and writes their lines of the access log; with `sampled`, of refusals from memory
 * at most one a second for each key of a limit.
 */
export function createAccessLog(
  { enabled, write }: LogOutput,
  metrics: Metrics,
  activity: Activity,
  refusals: 'all' | 'sampled' = 'all',
) {
  const sample =
    refusals === 'all'
      ? undefined
      : createLogSampler(refusalLine, (line, omitted) => write(withOmitted(line, omitted)))
  const observe = atCallbackEnd((exchange: Exchange) => {
    const { route, method, decision, source, forwarded } = exchange
    const status = statusOf(exchange)
    const durationMs = exchange.endedAt - exchange.startedAt

    if (route === undefined) metrics.requests.inc('unmatched', 'any', String(status), source)
    else metrics.requests.inc(route.match, method, String(status), source)
    metrics.requestSeconds.observe(durationMs / 1000, route === undefined ? 'unmatched' : route.match)
    if (forwarded?.headAt !== undefined && route?.upstream !== undefined) {
      metrics.upstreamSeconds.observe((forwarded.headAt - exchange.forwardedAt!) / 1000, route.upstream)
    }
    if (decision?.mode === 'store' && !decision.cached) {
      metrics.storeSeconds.observe((exchange.decidedAt! - exchange.limitAt!) / 1000)
    }
    activity.count(exchange, status)
    const level = status >= 500 && source === 'gateway' ? 'error' : 'info'
    if (!enabled[level]) return
    if (sample !== undefined && decision?.cached === true)
      sample.take(keyOf(exchange.quotas, decision.refusedBy!.name), exchange, exchange.endedAt)
    else write(accessLine(level, exchange, status, durationMs))
  })
  return {
    /** To be called once for each request, when it is over. */
    observe,
    /** Writes what is still counted of refusals without a line. */
    close: () => sample?.close(),
  }
}

function statusOf({ status }: Exchange): number {
  return status === 0 ? CALLER_LEFT : status
}

function refusalLine(exchange: Exchange): string {
  return accessLine('info', exchange, statusOf(exchange), exchange.endedAt - exchange.startedAt)
}
