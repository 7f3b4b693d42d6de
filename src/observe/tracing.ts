/** The one file that imports OpenTelemetry; loaded only where `tracing` is configured. */
import { hostname } from 'node:os'
import {
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
} from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { resourceFromAttributes } from '@opentelemetry/resources'
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import type { Exchange } from '../gateway/exchange.ts'
import { parseTraceparent } from './traceparent.ts'
import { cut, epochMs, isDenied, loggablePath } from './access-line.ts'
import { atMostEvery, type Log } from './log.ts'
import { VERSION } from './version.ts'

export interface TracingOptions {
  /** Where spans are posted to (OTLP/HTTP, JSON). */
  readonly endpoint: string
  /** The part of requests without a trusted parent that are traced, from 0 to 1. */
  readonly sampleRatio: number
  /** Header fields of each post; may be secrets. */
  readonly headers: Readonly<Record<string, string>>
}

export type Tracing = ReturnType<typeof createTracing>

/** Spans beyond are dropped. */
const MAX_QUEUED = 2048
/** Few enough to be written as JSON between two requests. */
const MAX_BATCH = 128
/** Longest that one export takes, its retries included. */
const EXPORT_MS = 5000
const FAILED_LOG_MS = 60_000
/** Longest that the last spans hold up the end of the process, and how long they have after a drain that took all of its time. */
const MAX_FLUSH_MS = 1000
const MIN_FLUSH_MS = 100
/** Longest attribute. */
const MAX_CHARS = 300

/**
 * Traces requests: one server span each. The `traceparent` of a trusted proxy (W3C Trace Context) is the parent, and its sampled
 * flag decides. Any other caller's is only a link of a new trace, of which `sampleRatio` are sampled: callers could otherwise
 * choose to be traced, not to be traced, or to appear in another trace. Export is in the background and its failures are only logged.
 */
export function createTracing({ endpoint, sampleRatio, headers }: TracingOptions, log: Log) {
  const logFailure = atMostEvery(FAILED_LOG_MS, (reason: string) =>
    log.warn({ reason }, 'trace export failed; its spans are lost'),
  )
  const otlp = new OTLPTraceExporter({ url: endpoint, headers, timeoutMillis: EXPORT_MS })
  const exporter: SpanExporter = {
    export: (spans, done) =>
      otlp.export(spans, (result) => {
        if (result.error !== undefined) logFailure(reasonOf(result.error))
        done(result)
      }),
    shutdown: () => otlp.shutdown(),
  }
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': 'sluice',
      'service.version': VERSION,
      'service.instance.id': `${hostname()}:${process.pid}`,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampleRatio) }),
    spanLimits: { attributeValueLengthLimit: MAX_CHARS },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter,
        maxQueueSize: MAX_QUEUED,
        maxExportBatchSize: MAX_BATCH,
        exportTimeoutMillis: 2 * EXPORT_MS,
      }),
    ],
  })
  const tracer = provider.getTracer('sluice', VERSION)

  /** Starts the span of a request; returns it and the headers to forward, whose `traceparent` names the span. */
  function begin(exchange: Exchange) {
    const { headers } = exchange.request
    const caller = spanContextOf(headers['traceparent'])
    const isParent = caller !== undefined && exchange.trusted
    const route = pathOf(exchange)
    const span = tracer.startSpan(
      route === undefined ? exchange.method : `${exchange.method} ${route}`,
      {
        kind: SpanKind.SERVER,
        startTime: epochMs(exchange.startedAt),
        links: caller === undefined || isParent ? [] : [{ context: caller }],
      },
      isParent ? trace.setSpanContext(ROOT_CONTEXT, caller) : ROOT_CONTEXT,
    )
    const { traceId, spanId, traceFlags } = span.spanContext()
    const traceparent = `00-${traceId}-${spanId}-0${traceFlags}`
    // `tracestate` belongs to that parent (W3C Trace Context section 3.3).
    const tracestate = isParent ? headers['tracestate'] : undefined
    return { span, headers: { ...headers, traceparent, tracestate } }
  }

  return {
    begin,
    /** Ends the span of a finished request. */
    end(exchange: Exchange): void {
      const span = (exchange.span as Span | undefined) ?? begin(exchange).span
      if (!span.isRecording()) return
      describe(span, exchange)
      span.end(epochMs(exchange.endedAt))
    },
    /** Exports what is left, within `withinMs` and a second at most. Never rejects. */
    async close(withinMs: number): Promise<void> {
      let timer: NodeJS.Timeout | undefined
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, Math.max(MIN_FLUSH_MS, Math.min(withinMs, MAX_FLUSH_MS)))
      })
      await Promise.race([provider.shutdown().catch(() => {}), late])
      clearTimeout(timer)
    },
  }
}

/** Returns the context of the caller's span; undefined without a well-formed `traceparent`. */
function spanContextOf(traceparent: unknown): SpanContext | undefined {
  const parsed = parseTraceparent(traceparent)
  if (parsed === undefined) return undefined
  const { traceId, spanId, flags } = parsed
  return { traceId, spanId, traceFlags: flags & TraceFlags.SAMPLED, isRemote: true }
}

/** Returns the path of the route, as the configuration has it, without methods and host. */
function pathOf({ route }: Exchange): string | undefined {
  return route?.match.slice(route.match.indexOf('/'))
}

/** Sets what the access log shows, too, by OpenTelemetry's names where it has one. */
function describe(span: Span, exchange: Exchange): void {
  const { route, status, decision, error, forwarded } = exchange
  const reported = decision?.refusedBy ?? decision?.allowances[0]
  const attributes = {
    'http.request.method': exchange.method,
    'http.route': pathOf(exchange),
    'http.response.status_code': status === 0 ? undefined : status,
    'url.path': cut(loggablePath(exchange.path)),
    'url.scheme': 'encrypted' in exchange.request.socket ? 'https' : 'http',
    'server.address': cut(exchange.host),
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
    'sluice.store.duration_ms':
      decision?.mode === 'store' && !decision.cached ? exchange.decidedAt! - exchange.limitAt! : undefined,
    'sluice.upstream.duration_ms':
      forwarded?.headAt === undefined ? undefined : forwarded.headAt - exchange.forwardedAt!,
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) span.setAttribute(name, value)
  }
  if (status < 500 && exchange.incomplete !== 'cut') return
  span.setStatus({ code: SpanStatusCode.ERROR, ...(error !== undefined && { message: error.message }) })
}

/** Returns what went wrong, with the status that the receiver answered. */
function reasonOf({ message, code }: Error & { readonly code?: unknown }): string {
  return typeof code === 'number' ? `answered ${code}` : message
}
