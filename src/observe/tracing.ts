/** The only file that imports OpenTelemetry; loaded only if `tracing` is configured. */
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources'
import { AlwaysOnSampler, BatchSpanProcessor, ParentBasedSampler } from '@opentelemetry/sdk-trace'
import { SamplingDecision, type SpanExporter, TraceIdRatioBasedSampler } from '@opentelemetry/sdk-trace'
import { TracerProvider } from '@opentelemetry/sdk-trace'
import type { Exchange } from '../gateway/exchange.ts'
import { epochMs } from './log-lines.ts'
import { parseTraceparent } from './traceparent.ts'
import { type Log, throttle } from './log.ts'
import { routePath, SHOW_ALL } from './shown-request.ts'
import { attributesOf } from './span-attributes.ts'
import { VERSION } from '../runtime/package.ts'

interface TracingOptions {
  /** The URL that spans are posted to (OTLP/HTTP, JSON). */
  readonly endpoint: string
  /** Ratio of traced requests among those without a trusted parent, from 0 to 1. */
  readonly sampleRatio: number
  /** Ratio of traced requests among those that the gateway refuses, also if a trusted proxy decided not to trace them. */
  readonly refused: number
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
 * traced, or appear in another trace. A refused request that is not sampled gets a span at the ratio
 * `refused` when it ends. Spans are exported in the background; failures are only
 * logged.
 */
export function createTracing(
  { endpoint, sampleRatio, refused, headers }: TracingOptions,
  log: Log,
  shown = SHOW_ALL,
) {
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
  const options = {
    resource: resourceOf(log),
    spanLimits: { attributeValueLengthLimit: MAX_CHARS },
    spanProcessors: [processor],
  }
  const byRatio = new TraceIdRatioBasedSampler(sampleRatio)
  const provider = new TracerProvider({ ...options, sampler: new ParentBasedSampler({ root: byRatio }) })
  const tracer = provider.getTracer('sluice', VERSION)
  const refusedSampler = new TraceIdRatioBasedSampler(refused)
  /** The ids of a request whose span is started again: the upstream may know them. */
  let ids = { traceId: '', spanId: '' }
  const always = new TracerProvider({
    ...options,
    sampler: new AlwaysOnSampler(),
    idGenerator: { generateTraceId: () => ids.traceId, generateSpanId: () => ids.spanId },
  })
  const refusedTracer = always.getTracer('sluice', VERSION)

  /** Starts the span of a request. Returns it and the headers to forward, whose `traceparent` names the span. */
  function begin(exchange: Exchange, by = tracer) {
    const { headers } = exchange.request
    const received = parseTraceparent(headers['traceparent'])
    const caller = received && { ...received, isRemote: true }
    const parent = exchange.trusted ? caller : null
    const path = routePath(exchange)
    const span = by.startSpan(
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
    // Node.js 20 takes 3 us more to add fields to a copy by `...`.
    return { span, headers: Object.assign({}, headers, { traceparent, tracestate }) }
  }

  /** True if a request that is not sampled gets a span because the gateway refused it. */
  function samplesRefusal({ refusal, source }: Exchange, traceId: string): boolean {
    if (refused === 0 || refusal === undefined || source !== 'gateway') return false
    return refusedSampler.shouldSample(ROOT_CONTEXT, traceId).decision !== SamplingDecision.NOT_RECORD
  }

  /** Returns the span of a request that has ended; undefined if it is not sampled. */
  function spanOf(exchange: Exchange): Span | undefined {
    const span = (exchange.span as Span | undefined) ?? begin(exchange).span
    if (span.isRecording()) return span
    ids = span.spanContext()
    return samplesRefusal(exchange, ids.traceId) ? begin(exchange, refusedTracer).span : undefined
  }

  return {
    begin,
    /** Ends the span of a request, and writes the id of its trace into the exchange if it is sampled. */
    end(exchange: Exchange): void {
      const span = spanOf(exchange)
      if (span === undefined) return
      exchange.sampledTraceId = span.spanContext().traceId
      span.setAttributes(attributesOf(exchange, shown))
      const { error, status } = exchange
      if (status >= 500 || exchange.incomplete === 'cut')
        span.setStatus({
          code: SpanStatusCode.ERROR,
          ...(error && { message: error.logged ?? error.message }),
        })
      span.end(epochMs(exchange.endedAt))
    },
    /** Exports the remaining spans, within `withinMs` and at most a second. Never rejects. */
    async close(withinMs: number): Promise<void> {
      const timeout = sleep(Math.max(MIN_FLUSH_MS, Math.min(withinMs, MAX_FLUSH_MS)))
      await Promise.race([provider.shutdown(), timeout]).catch(() => {})
    },
  }
}

/** True for the name of an attribute that OTEL_SERVICE_NAME does not set. */
const isOther = (name: string): boolean => name.trim() !== 'service.name' && name.trim() !== ''

/**
 * Returns the attributes of this process, which the environment completes and replaces: OTEL_SERVICE_NAME,
 * and OTEL_RESOURCE_ATTRIBUTES (OpenTelemetry, "Resource SDK"), which is ignored as a whole if it is
 * malformed.
 */
function resourceOf(log: Log) {
  const own = resourceFromAttributes({
    'service.name': 'sluice',
    'service.version': VERSION,
    'service.instance.id': `${hostname()}:${process.pid}`,
  })
  const given = detectResources({ detectors: [envDetector] })
  const written = (process.env['OTEL_RESOURCE_ATTRIBUTES'] ?? '')
    .split(',')
    .map((pair) => pair.split('=', 1)[0]!)
  if (written.some(isOther) && !Object.keys(given.attributes).some(isOther))
    log.warn('OTEL_RESOURCE_ATTRIBUTES is malformed and ignored; write key=value,key=value')
  return own.merge(given)
}
