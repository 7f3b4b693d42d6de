import type { Exchange } from '../gateway/exchange.ts'
import { atCallbackEnd } from '../runtime/hot-path.ts'
import { accessLine, statusOf, withOmitted } from './log-lines.ts'
import { type Activity, keyOf } from './activity/activity.ts'
import { createLogSampler } from './log-sampler.ts'
import type { LogOutput } from './log.ts'
import type { Metrics } from './metrics.ts'

/** An unknown transfer coding. Any caller can cause it, so it is not an error of the gateway. */
const NOT_IMPLEMENTED = 501

/**
 * Counts finished requests and their durations, and writes the access log. With `sampled`, refusals from memory have at most one
 * line a second for each key of a limit.
 */
export function createAccessLog(
  { log, write }: LogOutput,
  metrics: Metrics,
  activity: Activity,
  refusals: 'all' | 'sampled',
) {
  const sampler =
    refusals === 'all'
      ? undefined
      : createLogSampler(accessLine, (line, omitted) => write(withOmitted(line, omitted)))
  const record = atCallbackEnd((exchange: Exchange) => {
    const { route, decision, source, forwarded, endedAt } = exchange
    const status = statusOf(exchange)
    const match = route?.match ?? 'unmatched'

    metrics.requests.inc(match, route === undefined ? 'any' : exchange.method, String(status), source)
    metrics.requestSeconds.observe((endedAt - exchange.startedAt) / 1000, match)
    if (forwarded?.headAt !== undefined && route?.upstream !== undefined)
      metrics.upstreamSeconds.observe((forwarded.headAt - exchange.forwardedAt!) / 1000, route.upstream)
    if (decision?.mode === 'store' && !decision.cached)
      metrics.storeSeconds.observe((exchange.decidedAt! - exchange.limitAt!) / 1000)
    activity.count(exchange, status)
    // A limit may refuse with any status.
    const isRefused = decision?.admitted === false
    const isError = status >= 500 && status !== NOT_IMPLEMENTED && source === 'gateway' && !isRefused
    const level = isError ? 'error' : 'info'
    if (!log.isLevelEnabled(level)) return
    if (sampler !== undefined && decision?.cached === true)
      sampler.add(keyOf(exchange.quotas, decision.refusedBy!.name), exchange, endedAt)
    else write(accessLine(exchange, level))
  })
  return {
    /** Records a finished request; called once. */
    observe: record,
    /** Writes the pending lines of sampled refusals. */
    close: () => sampler?.close(),
  }
}
