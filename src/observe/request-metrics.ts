import type { Registry } from 'prom-client'
import { createHotCounter, type HotCounts } from './hot-counter.ts'
import { createHotHistogram, type Durations } from './hot-histogram.ts'

/** Upper bounds in seconds. Requests range from a cache hit on loopback to a slow upstream. */
export const REQUEST_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const REQUEST_LABELS = ['method', 'code', 'source', 'client'] as const
const TO_HEAD = 'From forwarding a request to the head of its response, or until its caller left.'

/** The parts of a route that its series have as labels. */
interface MeasuredRoute {
  readonly match: string
  readonly name?: string | undefined
  readonly upstream?: string | undefined
  readonly labels?: Readonly<Record<string, string>> | undefined
}

/** The series of the requests of a route. */
export interface RouteSeries {
  /** Counts by method, code and source, and with `metrics.clients: listed` by client. */
  readonly requests: HotCounts
  readonly seconds: Durations
  /** Undefined without an upstream; all routes of an upstream have the same. */
  readonly upstreamSeconds: Durations | undefined
}

/**
 * Registers the metrics of requests. The labels of a route are looked up once, when it is wired, not
 * with each request.
 */
export function createRequestMetrics(registry: Registry) {
  const requests = createHotCounter<'route' | (typeof REQUEST_LABELS)[number]>(registry, {
    name: 'sluice_http_requests_total',
    help: 'Ended requests.',
    labelNames: REQUEST_LABELS,
  })
  const ofRequests = { name: 'sluice_http_request_duration_seconds', help: 'Time of requests.' }
  const requestSeconds = createHotHistogram(registry, ofRequests, REQUEST_BUCKETS)
  const ofUpstreams = { name: 'sluice_upstream_duration_seconds', help: TO_HEAD }
  const upstreamSeconds = createHotHistogram(registry, ofUpstreams, REQUEST_BUCKETS)
  const byLabels = new Map<string, RouteSeries>()

  /** Returns the series of a route; the same ones for the same labels, also after a reload. */
  function seriesOf({ match, name, upstream, labels }: MeasuredRoute): RouteSeries {
    const before = { route: name ?? match }
    const after = { upstream: upstream ?? '', ...labels }
    const id = JSON.stringify([before, after])
    const known = byLabels.get(id)
    if (known !== undefined) return known
    const series: RouteSeries = {
      requests: requests.under(before, after),
      seconds: requestSeconds.of({ ...before, ...after }),
      upstreamSeconds: upstream === undefined ? undefined : upstreamSeconds.of({ upstream }),
    }
    byLabels.set(id, series)
    return series
  }

  return { requests, requestSeconds, upstreamSeconds, seriesOf, unmatched: seriesOf({ match: 'unmatched' }) }
}
