import type { Exchange } from '../gateway/exchange.ts'
import { accessLine } from './access-line.ts'
import type { LogOutput } from './log.ts'
import type { Metrics } from './metrics.ts'

/** The status logged for a caller that left before an answer was begun, as nginx writes it. */
const CALLER_LEFT = 499

/** Writes each finished request's one log line, and counts it. */
export function createAccessLog({ log, write }: LogOutput, metrics: Metrics): (exchange: Exchange) => void {
  const told = { info: log.isLevelEnabled('info'), error: log.isLevelEnabled('error') }
  return (exchange) => {
    const { route, decision, source } = exchange
    const status = exchange.status === 0 ? CALLER_LEFT : exchange.status
    const durationMs = performance.now() - exchange.startedAt

    metrics.requests.inc(
      route?.match ?? 'unmatched',
      route === undefined ? 'any' : exchange.method,
      String(status),
      source,
    )
    metrics.requestSeconds.observe(durationMs / 1000)
    if (exchange.forwarded?.headAt !== undefined && route?.upstream !== undefined) {
      metrics.upstreamSeconds.observe((exchange.forwarded.headAt - exchange.askedAt!) / 1000, route.upstream)
    }
    if (decision?.mode === 'store' && !decision.cached) {
      metrics.storeSeconds.observe((exchange.decidedAt! - exchange.limitAt!) / 1000)
    }

    const level = status >= 500 && source === 'gateway' ? 'error' : 'info'
    if (told[level]) write(accessLine(level, exchange, status, durationMs))
  }
}
