import { AggregatorRegistry, collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client'
import { createHotHistogram, createHotCounter } from './hot-metrics.ts'
import { VERSION } from './version.ts'

/** Seconds; from a cache hit on loopback to a patient upstream. */
const REQUEST_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const STORE_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25]

/** Gauges of prom-client with a counter's name, which `promtool check metrics` refuses. */
const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`)

export type Metrics = ReturnType<typeof createMetrics>

type Aggregator = 'sum' | 'first' | 'min' | 'max'

/** Values of a gauge that are read when it is shown. */
type Read = () => Iterable<readonly [labels: Readonly<Record<string, string>>, value: number]>

/** Creates everything that `/metrics` shows. No label takes a value that callers choose. */
export function createMetrics() {
  const registry = new Registry()
  /** Those of the process: to read them takes milliseconds when many files are open. */
  const ofProcess = new Registry()
  collectDefaultMetrics({ register: ofProcess })
  for (const what of MISNAMED) ofProcess.removeSingleMetric(what)

  const counter = (name: string, help: string, ...labelNames: string[]) =>
    new Counter({ name, help, labelNames, registers: [registry] })
  /** `aggregator` says what several processes show. */
  const gauge = (aggregator: Aggregator, name: string, help: string, ...labelNames: string[]) =>
    new Gauge({ name, help, labelNames, registers: [registry], aggregator })
  /** Returns a function that sets where the gauge's values are read, whenever it is shown. */
  const readGauge =
    (aggregator: Aggregator, name: string, help: string, ...labelNames: string[]) =>
    (read: Read): void =>
      void new Gauge({
        ...{ name, help, labelNames, registers: [registry], aggregator },
        collect() {
          this.reset()
          for (const [labels, value] of read()) this.set(labels, value)
        },
      })

  gauge('first', 'sluice_build_info', 'Which Sluice this is; always 1.', 'version', 'node').set(
    { version: VERSION, node: process.versions.node },
    1,
  )
  const lastReload = gauge('max', 'sluice_config_last_reload_successful', '1 if the last reload was taken.')
  const lastReloadAt = gauge(
    'max',
    'sluice_config_last_reload_success_timestamp_seconds',
    'When a configuration was last taken.',
  )
  const failedReloads = counter('sluice_config_reload_failures_total', 'Configurations that were rejected.')
  const configHash = gauge('first', 'sluice_config_hash_info', 'The configuration in force; 1.', 'hash')
  const metrics = {
    readUpstreams: readGauge('min', 'sluice_upstream_up', '0 while it fails.', 'upstream', 'address'),
    readKeyAges: readGauge(
      'max',
      'sluice_issuer_keys_age_seconds',
      'Since the keys were last read, or, if they never were, since they were first tried.',
      'issuer',
    ),
    keyFailures: counter('sluice_issuer_keys_failures_total', 'Failed reads of the keys.', 'issuer'),
    readIntrospections: readGauge('min', 'sluice_introspection_up', '0 while it fails.', 'issuer'),
    introspections: counter(
      'sluice_introspection_requests_total',
      'Tokens looked up: active, inactive, failed (without an answer).',
      ...['issuer', 'result'],
    ),
    readCertificates: readGauge(
      'min',
      'sluice_certificate_expiry_timestamp_seconds',
      'When the first certificate of the file at this path of the configuration expires.',
      'certificate',
    ),
    readSockets: readGauge('sum', 'sluice_downstream_sockets', "Callers' sockets that are open."),
    maxSockets: gauge('sum', 'sluice_downstream_max_sockets', 'Most of them: listen.maxConnections.'),
    readUpstreamSockets: readGauge('sum', 'sluice_upstream_sockets', 'Sockets that are open.', 'upstream'),
    readUpstreamMaxSockets: readGauge(
      'sum',
      'sluice_upstream_max_sockets',
      'Most of them: maxConnections of the upstream.',
      'upstream',
    ),
    readUpstreamQueues: readGauge(
      'sum',
      'sluice_upstream_queue',
      'Requests without a socket yet.',
      'upstream',
    ),
    failures: counter('sluice_failures_total', 'What the key failures counts.'),
    failuresRefused: counter('sluice_failures_refused_total', 'Requests that it refused with 429.'),
    droppedSockets: counter('sluice_dropped_sockets_total', 'Sockets closed over a bound.', 'bound'),
    requests: createHotCounter(
      registry,
      'sluice_http_requests_total',
      'Requests, by who answered: the gateway itself or the upstream.',
      ...['route', 'method', 'code', 'source'],
    ),
    requestSeconds: createHotHistogram(
      registry,
      'sluice_http_request_duration_seconds',
      'From the head of a request to the end of its response.',
      REQUEST_BUCKETS,
      'route',
    ),
    upstreamSeconds: createHotHistogram(
      registry,
      'sluice_upstream_duration_seconds',
      'From forwarding a request to the head of its response.',
      REQUEST_BUCKETS,
      'upstream',
    ),
    decisions: createHotCounter(
      registry,
      'sluice_limit_decisions_total',
      'Decisions: within, near (80 % used), over, over_cached (without the store), shadow_over.',
      ...['limit', 'outcome'],
    ),
    storeSeconds: createHotHistogram(
      registry,
      'sluice_store_duration_seconds',
      'How long decisions waited for the store.',
      STORE_BUCKETS,
    ),
    storeUp: gauge('min', 'sluice_store_up', '1 if the store decides, in every worker.'),
    storeMode: gauge('max', 'sluice_store_mode', '1 for the modes that decide now, in any worker.', 'mode'),
    overrides: gauge('max', 'sluice_limit_overrides', "Clients' limits that operators have set."),
    fallbackDecisions: counter('sluice_store_stand_in_decisions_total', 'Decisions of the fallback.', 'mode'),
    workers: gauge('sum', 'sluice_workers', 'Processes that serve callers.'),
    workerEnds: counter('sluice_worker_ends_total', 'Workers that exited unasked.'),
    contentType: registry.contentType,
    /** A configuration came into force, in place of the one with the hash `before`. */
    configLoaded(hash: string, before = hash): void {
      configHash.remove({ hash: before })
      configHash.set({ hash }, 1)
      lastReload.set(1)
      lastReloadAt.setToCurrentTime()
    },
    configFailed(): void {
      failedReloads.inc()
      lastReload.set(0)
    },
    /** Returns plain values, to be added to those of other processes. */
    values: async (): Promise<MetricValues> => [
      ...(await registry.getMetricsAsJSON()),
      ...(await ofProcess.getMetricsAsJSON()),
    ],
    /** As `values`, without those of the process. */
    ownValues: (): Promise<MetricValues> => registry.getMetricsAsJSON(),
    text: async (): Promise<string> => `${await registry.metrics()}\n${await ofProcess.metrics()}`,
  }
  for (const bound of ['maxConnections', 'maxConnectionsPerAddress']) metrics.droppedSockets.inc({ bound }, 0)
  return metrics
}

/** What one process shows at `/metrics`, as plain values. */
export type MetricValues = Readonly<Awaited<ReturnType<Registry['getMetricsAsJSON']>>>

const aggregate = (all: readonly MetricValues[]) => AggregatorRegistry.aggregate(all as unknown as object[])

/** Returns the text of `/metrics` of several processes as one; each metric's `aggregator` says how. */
export const textOf = (all: readonly MetricValues[]): Promise<string> => aggregate(all).metrics()

/** Returns the values of several processes as those of one. */
export const valuesOf = (all: readonly MetricValues[]): Promise<MetricValues> =>
  aggregate(all).getMetricsAsJSON()

/** Returns what several processes have counted: counters, and histograms, which are made of them. */
export function countsOf(all: readonly MetricValues[]): MetricValues {
  const values = aggregate(all).getMetricsAsArray() as unknown as MetricValues
  return values.filter(({ type }) => ['counter', 'histogram'].includes(String(type)))
}
