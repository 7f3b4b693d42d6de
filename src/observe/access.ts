import type { Exchange } from '../exchange.ts'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'

/** The status logged for a caller that left before an answer was begun, as nginx writes it. */
const CALLER_LEFT = 499
const MAX_PATH = 256

/** Writes each finished request's one log line, and counts it. */
export function createAccessLog(log: Log, metrics: Metrics): (exchange: Exchange) => void {
  return (exchange) => {
    const { route, caller, decision, error } = exchange
    const endedAt = performance.now()
    const status = exchange.status === 0 ? CALLER_LEFT : exchange.status
    const durationMs = endedAt - exchange.startedAt

    metrics.requests.inc(
      route?.match ?? 'unmatched',
      route === undefined ? 'any' : exchange.method,
      String(status),
      exchange.source,
    )
    metrics.requestSeconds.observe(durationMs / 1000)
    if (exchange.headAt !== undefined && route?.upstream !== undefined) {
      metrics.upstreamSeconds.observe(
        { upstream: route.upstream },
        (exchange.headAt - exchange.askedAt!) / 1000,
      )
    }

    if (decision?.mode === 'store' && !decision.cached) {
      metrics.storeSeconds.observe((exchange.decidedAt! - exchange.limitAt!) / 1000)
    }

    const line = {
      requestId: exchange.requestId,
      method: exchange.method.slice(0, 16),
      path:
        exchange.path !== undefined && exchange.path.length > MAX_PATH
          ? `${exchange.path.slice(0, MAX_PATH)}…`
          : exchange.path,
      route: route?.match,
      upstream: route?.upstream,
      client: caller?.client,
      ip: exchange.ip,
      ...(decision && decided(decision)),
      source: exchange.source,
      status,
      durationMs: round(durationMs),
      upstreamMs: exchange.headAt === undefined ? undefined : round(exchange.headAt - exchange.askedAt!),
      incomplete: exchange.incomplete,
      code: error?.code,
      error: error?.message,
      cause: exchange.givenUp ?? causeOf(error?.cause),
    }
    if (status >= 500 && exchange.source === 'gateway') log.error(line, 'request')
    else log.info(line, 'request')
  }
}

function decided(decision: NonNullable<Exchange['decision']>): Record<string, unknown> {
  const reported = decision.refusedBy ?? decision.allowances[0]
  return {
    decision: decision.admitted ? 'admitted' : 'refused',
    limit: reported?.name,
    remaining: reported?.remaining,
    mode: decision.mode,
    shadowOver: shadowOver(decision),
  }
}

/** The shadow limits that would have refused the call. */
function shadowOver({ allowances }: NonNullable<Exchange['decision']>): readonly string[] | undefined {
  const over = allowances.filter(({ shadow, admitted }) => shadow && !admitted)
  return over.length > 0 ? over.map(({ name }) => name) : undefined
}

/** What happened, for the operator: the chain of messages, with the stack where it is a fault of the gateway's own. */
function causeOf(cause: unknown): string | undefined {
  if (cause === undefined) return undefined
  if (typeof cause === 'string') return cause.slice(0, 500)
  if (!(cause instanceof Error)) return 'unknown'
  const own = cause instanceof TypeError || cause instanceof RangeError || cause instanceof ReferenceError
  return (own ? (cause.stack ?? cause.message) : cause.message).slice(0, 2000)
}

const round = (ms: number): number => Math.round(ms * 1000) / 1000
