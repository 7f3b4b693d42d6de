import type { Exchange, GatewayRoute } from '../gateway/exchange.ts'
import type { CallSettlement } from '../gateway/settlement.ts'
import { atCallbackEnd } from '../runtime/batch.ts'
import { accessLine, statusOf, withOmitted } from './log-lines.ts'
import type { LogOutput } from './log.ts'
import type { Metrics } from './metrics.ts'
import type { RouteSeries } from './request-metrics.ts'
import type { ShownRequest } from './shown-request.ts'

/** A WebSocket that was opened. */
const SWITCHED = 101
/** An unknown transfer coding, or a WebSocket. Any caller can cause it, so it is not an error of the gateway. */
const NOT_IMPLEMENTED = 501

/** Interval in which a key has at most one line, in milliseconds. */
const INTERVAL_MS = 1000
/** Maximum sampled keys; the lines of further keys are all written. */
const MAX_KEYS = 10_000

/**
 * Counts finished requests, and writes the access log; with `sampled`, a line a second for each key
 * that refuses from memory. Calls `count` for each, with its status.
 */
export function createAccessLog(
  { log, write }: LogOutput,
  metrics: Metrics,
  count: (exchange: Exchange, status: number) => void,
  refusals: 'all' | 'sampled',
  shown?: ShownRequest,
) {
  const lineOf = (exchange: Exchange): string => accessLine(exchange, 'info', shown)
  const sampler = createLogSampler(lineOf, (line, omitted) => write(withOmitted(line, omitted)))
  const byRoute = new WeakMap<GatewayRoute, RouteSeries>()
  function seriesOf(route: GatewayRoute): RouteSeries {
    const known = byRoute.get(route)
    if (known !== undefined) return known
    const series = metrics.seriesOf(route)
    byRoute.set(route, series)
    return series
  }
  const observe = atCallbackEnd((exchange: Exchange) => {
    const { route, decision, source, forwarded, endedAt } = exchange
    const status = statusOf(exchange)
    const series = route === undefined ? metrics.unmatched : seriesOf(route)
    const method = route === undefined ? 'any' : exchange.method

    if (route?.clientLabel === undefined) series.requests.inc(method, String(status), source)
    else {
      // As in the log: that of a verified token, also if it is refused.
      const client = route.clientLabel(exchange.caller?.client ?? exchange.refusal?.client)
      series.requests.inc(method, String(status), source, client)
    }
    // A WebSocket is open for hours: its duration is that of its handshake.
    const respondedAt = status === SWITCHED ? forwarded!.headAt! : endedAt
    series.seconds.observe((respondedAt - exchange.startedAt) / 1000, exchange.sampledTraceId)
    // An upstream that hangs is slow, also if its callers leave before the head.
    const end = forwarded?.headAt ?? (forwarded?.waitedFor === 'response' ? endedAt : undefined)
    if (end !== undefined) series.upstreamSeconds?.observe((end - exchange.forwardedAt!) / 1000)
    if (decision?.mode === 'store' && !decision.cached)
      metrics.storeSeconds.observe((exchange.decidedAt! - exchange.limitAt!) / 1000)
    if (exchange.settlement !== undefined) countSettlement(exchange.settlement, metrics)
    count(exchange, status)
    // A limit may refuse with any status.
    const isRefused = decision?.admitted === false
    const isError = status >= 500 && status !== NOT_IMPLEMENTED && source === 'gateway' && !isRefused
    const level = isError ? 'error' : 'info'
    if (!log.isLevelEnabled(level)) return
    if (refusals === 'sampled' && decision?.cached === true)
      sampler.add(keyOfLimit(exchange.quotas, decision.refusedBy!.name), exchange, endedAt)
    else write(accessLine(exchange, level, shown))
  })
  return { observe, close: sampler.close }
}

/** Counts the reserves of a call, and what it used. */
function countSettlement({ reserved }: CallSettlement, metrics: Metrics): void {
  for (const { quota, points, used } of reserved) {
    const counts = metrics.settlementsOf(quota.name)
    counts.reserved += points
    if (typeof used === 'number') {
      counts.used += used
      counts.settledCalls++
    } else counts.unsettledCalls++
  }
}

/** Returns the key of the limit with this name; an empty string if no quota has it. */
export function keyOfLimit(quotas: Exchange['quotas'], name: string): string {
  for (const quota of quotas) if (quota.name === name) return quota.key
  return ''
}

/**
 * Writes the first line of each key, then at most one a second with the number omitted before it;
 * the first omitted one if none follows. Instants are `performance.now()`.
 */
export function createLogSampler<Item, Line>(
  lineOf: (item: Item) => Line,
  write: (line: Line, omitted: number) => void,
) {
  /** `until` is the instant until which lines are omitted, and `line` the first of them. */
  const entries = new Map<string, { readonly until: number; omitted: number; line?: Line }>()
  const timer = setInterval(() => sweep(performance.now()), INTERVAL_MS).unref()

  const begin = (key: string, now: number) => entries.set(key, { until: now + INTERVAL_MS, omitted: 0 })

  function sweep(now: number): void {
    for (const [key, { until, omitted, line }] of entries) {
      if (until > now) continue
      if (omitted > 0) {
        write(line!, omitted - 1)
        begin(key, now)
      } else entries.delete(key)
    }
  }

  return {
    add(key: string, item: Item, now: number): void {
      const entry = entries.get(key)
      if (entry !== undefined && entry.until > now) {
        if (entry.omitted++ === 0) entry.line = lineOf(item)
        return
      }
      write(lineOf(item), entry?.omitted ?? 0)
      if (entry !== undefined || entries.size < MAX_KEYS) begin(key, now)
    },
    sweep,
    /** Writes all omitted lines that are pending. */
    close(): void {
      clearInterval(timer)
      sweep(Infinity)
    },
  }
}
