/** The only file that imports OpenTelemetry; loaded only if `tracing` is configured. */
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { resourceFromAttributes } from '@opentelemetry/resources'
import { BatchSpanProcessor, ParentBasedSampler, type SpanExporter } from '@opentelemetry/sdk-trace'
import { TraceIdRatioBasedSampler, TracerProvider } from '@opentelemetry/sdk-trace'
import type { Exchange } from '../gateway/exchange.ts'
import { cut, epochMs, isDenied, parseTraceparent } from './log-lines.ts'
import { type Log, throttle } from './log.ts'
import { VERSION } from '../runtime/package.ts'

interface TracingOptions {
  /** The URL that spans are posted to (OTLP/HTTP, JSON). */
  readonly endpoint: string
  /** Ratio of traced requests among those without a trusted parent, from 0 to 1. */
  readonly sampleRatio: number
  /** Header fields of each post; may contain secrets. */
  readonly headers: Readonly<Record<string, string>>
}

/** Maximum spans in the queue; further spans are dropped. */
const MAX_QUEUED = 2048
/** Maximum spans of an export: few enough to be serialised between two requests. */
const MAX_BATCH = 128
/** Timeout of one export with its retries. */
const EXPORT_MS = 5000
/** Maximum and minimum time to flush spans at shutdown; the minimum applies even if the drain took all of its time. */
const MAX_FLUSH_MS = 1000
const MIN_FLUSH_MS = 100
const MAX_CHARS = 300

/**
 * Traces requests, with one server span each. The `traceparent` of a trusted proxy (W3C Trace
 * Context) is the parent, and its sampled flag decides. The `traceparent` of another caller is only
 * linked to a new trace, sampled at `sampleRatio`: callers could otherwise choose whether they are
 * traced, or appear in another trace. Spans are exported in the background; failures are only
 * logged.
 */
export function createTracing({ endpoint, sampleRatio, headers }: TracingOptions, log: Log) {
  const logFailure = throttle(({ message, code }: Error & { readonly code?: unknown }) => {
    const reason = typeof code === 'number' ? `answered ${code}` : message
    log.warn({ reason }, 'trace export failed; its spans are lost')
  })
  const otlp = new OTLPTraceExporter({ url: endpoint, headers, timeoutMillis: EXPORT_MS })
  const exporter: SpanExporter = {
    export: (spans, done) =>
      otlp.export(spans, (result) => {
        if (result.error !== undefined) logFailure(result.error)
        done(result)
      }),
    shutdown: () => otlp.shutdown(),
  }
  const processor = new BatchSpanProcessor({
    exporter,
    maxQueueSize: MAX_QUEUED,
    maxExportBatchSize: MAX_BATCH,
    exportTimeoutMillis: 2 * EXPORT_MS,
  })
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': 'sluice',
      'service.version': VERSION,
      'service.instance.id': `${hostname()}:${process.pid}`,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampleRatio) }),
    spanLimits: { attributeValueLengthLimit: MAX_CHARS },
    spanProcessors: [processor],
  })
  const tracer = provider.getTracer('sluice', VERSION)

  /** Starts the span of a request. Returns it and the headers to forward, whose `traceparent` names the span. */
  function begin(exchange: Exchange) {
    const { headers } = exchange.request
    const received = parseTraceparent(headers['traceparent'])
    const caller = received && { ...received, isRemote: true }
    const parent = exchange.trusted ? caller : null
    const path = routePath(exchange)
    const span = tracer.startSpan(
      path === undefined ? exchange.method : `${exchange.method} ${path}`,
      {
        kind: SpanKind.SERVER,
        startTime: epochMs(exchange.startedAt),
        links: caller === null || parent !== null ? [] : [{ context: caller }],
      },
      parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent),
    )
    const { traceId, spanId, traceFlags } = span.spanContext()
    const traceparent = `00-${traceId}-${spanId}-0${traceFlags}`
    // The tracestate belongs to the parent (W3C Trace Context section 3.3).
    const tracestate = parent === null ? undefined : headers['tracestate']
    return { span, headers: { ...headers, traceparent, tracestate } }
  }

  return {
    begin,
    end(exchange: Exchange): void {
      const span = (exchange.span as Span | undefined) ?? begin(exchange).span
      if (!span.isRecording()) return
      describe(span, exchange)
      span.end(epochMs(exchange.endedAt))
    },
    /** Exports the remaining spans, within `withinMs` and at most a second. Never rejects. */
    async close(withinMs: number): Promise<void> {
      const timeout = sleep(Math.max(MIN_FLUSH_MS, Math.min(withinMs, MAX_FLUSH_MS)))
      await Promise.race([provider.shutdown(), timeout]).catch(() => {})
    },
  }
}

/** Returns the path of the route as configured, without methods and host. */
const routePath = ({ route }: Exchange) => route?.match.slice(route.match.indexOf('/'))

/** Sets the attributes: the data of the access log, under OpenTelemetry's names where they exist. */
function describe(span: Span, exchange: Exchange): void {
  const { route, status, decision, error, forwarded } = exchange
  const reported = decision?.refusedBy ?? decision?.allowances[0]
  const isAsked = decision?.mode === 'store' && !decision.cached
  span.setAttributes({
    'http.request.method': exchange.method,
    'http.route': routePath(exchange),
    'http.response.status_code': status === 0 ? undefined : status,
    'url.path': cut(exchange.path),
    'url.scheme': 'encrypted' in exchange.request.socket ? 'https' : 'http',
    'server.address': cut(exchange.target?.host),
    'client.address': exchange.ip,
    'error.type': status >= 500 ? String(status) : undefined,
    'sluice.request_id': exchange.requestId,
    'sluice.source': exchange.source,
    'sluice.upstream': route?.upstream,
    'sluice.client': exchange.caller?.client,
    'sluice.decision': decision && (decision.admitted ? 'admitted' : 'refused'),
    'sluice.limit': reported?.name,
    'sluice.remaining': reported?.remaining,
    'sluice.store.mode': isDenied(exchange) ? 'deny' : decision?.mode,
    'sluice.store.duration_ms': isAsked ? exchange.decidedAt! - exchange.limitAt! : undefined,
    'sluice.upstream.duration_ms': forwarded?.headAt && forwarded.headAt - exchange.forwardedAt!,
  })
  if (status < 500 && exchange.incomplete !== 'cut') return
  span.setStatus({ code: SpanStatusCode.ERROR, ...(error && { message: error.message }) })
}
