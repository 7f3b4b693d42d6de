import type * as prom from 'prom-client'
import { createHotCounter } from './hot-counter.ts'
import { createHotHistogram } from './hot-histogram.ts'
import { collectNodeMetrics } from './node-metrics.ts'
import { type MetricsFormat, type MetricValues, openMetricsText } from './open-metrics.ts'
import { createRequestMetrics } from './request-metrics.ts'
import { createSettlementMetrics } from './settlement-metrics.ts'
import { AggregatorRegistry, Counter, Gauge, Registry } from './prom-client.ts'
import { VERSION } from '../runtime/package.ts'
import { REVISION } from '../runtime/revision.ts'

/** Upper bounds in seconds. */
export const STORE_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25]

export type Metrics = ReturnType<typeof createMetrics>

/** The values of a gauge by their labels: false is 0, true is 1, null is not shown. */
export type GaugeValues = Iterable<
  readonly [labels: Readonly<Record<string, string>>, value: number | boolean | null]
>

/** Creates all metrics of `/metrics`. No label has a value that callers choose. */
export function createMetrics() {
  const registry = new Registry()
  collectNodeMetrics(registry)

  const parse = (series: string, help: string) => {
    const [name = '', ...labelNames] = series.split(/[{,}]/).filter(Boolean)
    return { name, help, labelNames, registers: [registry] }
  }
  const counter = (series: string, help: string) => new Counter(parse(series, help))
  const gauge = (by: prom.Aggregator, series: string, help: string) =>
    new Gauge({ ...parse(series, help), aggregator: by })
  /** Registers a gauge whose values `read` returns whenever it is shown; `by` combines several processes. */
  const showGauge = (by: prom.Aggregator, series: string, help: string, read: () => GaugeValues) =>
    void new Gauge({
      ...parse(series, help),
      aggregator: by,
      collect() {
        this.reset()
        for (const [labels, value] of read()) if (value !== null) this.set(labels, Number(value))
      },
    })
  const ofStore = { name: 'sluice_store_duration_seconds', help: 'Time of decisions.' }

  const build = gauge('first', 'sluice_build_info{version,revision,node}', 'Versions in use; always 1.')
  build.set({ version: VERSION, revision: REVISION, node: process.versions.node }, 1)
  const lastReload = gauge('max', 'sluice_config_last_reload_successful', '0 after a failed reload.')
  const loadedAt = gauge('max', 'sluice_config_last_reload_success_timestamp_seconds', 'Last load.')
  const failedReloads = counter('sluice_config_reload_failures_total', 'Rejected configurations.')
  const configHash = gauge('first', 'sluice_config_hash_info{hash}', 'Configuration used; always 1.')
  const kept = gauge('max', 'sluice_configuration_kept', '1 while configuration.keep is in force.')
  const files = gauge('max', 'sluice_configuration_files{state}', 'Included files, by their state.')
  for (const state of ['valid', 'previous', 'invalid']) files.set({ state }, 0)
  const dropped = counter('sluice_dropped_sockets_total{bound}', 'Sockets closed at a limit.')
  const outcomes = 'Within, near (80 % used), over, over_cached (without the store) or shadow_over.'
  for (const bound of ['maxConnections', 'maxConnectionsPerAddress']) dropped.inc({ bound }, 0)

  return {
    showGauge,
    adminRequests: counter('sluice_admin_requests_total{operation,result}', 'Requests of operators.'),
    droppedSockets: dropped,
    maxSockets: gauge('sum', 'sluice_downstream_max_sockets', 'Maximum open sockets.'),
    droppedFields: counter('sluice_request_fields_dropped_total{upstream}', "Callers' fields not forwarded."),
    keyFailures: counter('sluice_issuer_keys_failures_total{issuer}', 'Failed reads of the keys.'),
    introspections: counter('sluice_introspection_requests_total{issuer,result}', 'Introspections.'),
    failures: counter('sluice_failures_total', 'Failed authentications and unmatched requests.'),
    failuresRefused: counter('sluice_failures_refused_total', 'Refused for too many failures.'),
    ...createRequestMetrics(registry),
    ...createSettlementMetrics(registry),
    decisions: createHotCounter(registry, {
      name: 'sluice_limit_decisions_total',
      labelNames: ['limit', 'outcome'],
      help: outcomes,
    }),
    storeSeconds: createHotHistogram(registry, ofStore, STORE_BUCKETS).of(),
    overrides: gauge('max', 'sluice_limit_overrides', "Clients' limits set by operators."),
    fallbackDecisions: counter('sluice_store_fallback_decisions_total{mode}', 'Fallback decisions.'),
    workerEnds: counter('sluice_worker_ends_total', 'Workers that exited unexpectedly.'),
    /** Records the hash of the loaded configuration, in place of the previous one. */
    configLoaded(hash: string): void {
      configHash.reset()
      configHash.set({ hash }, 1)
      lastReload.set(1)
      loadedAt.setToCurrentTime()
    },
    /** Records whether the kept configuration is in force. */
    configKept: (isKept: boolean): void => kept.set(isKept ? 1 : 0),
    /** Records the number of teams' files in each state. */
    configFiles(counts: Readonly<Record<string, number>>): void {
      for (const [state, count] of Object.entries(counts)) files.set({ state }, count)
    },
    configFailed(): void {
      failedReloads.inc()
      lastReload.set(0)
    },
    /** Returns all metrics as plain values, which can be combined with those of other processes. */
    values: (): Promise<MetricValues> => registry.getMetricsAsJSON(),
    /** Returns the text of `/metrics`, in the format of Prometheus or as OpenMetrics. */
    text: async (format: MetricsFormat = 'prometheus'): Promise<string> =>
      format === 'prometheus' ? await registry.metrics() : openMetricsText(await registry.getMetricsAsJSON()),
  }
}

/** Returns the text of `/metrics` for several processes. */
export async function textOfAll(all: readonly MetricValues[], format: MetricsFormat): Promise<string> {
  const sums = aggregate(all)
  return format === 'prometheus' ? await sums.metrics() : openMetricsText(await sums.getMetricsAsJSON(), all)
}

/** Combines the metrics of several processes. */
export const aggregate = (all: readonly MetricValues[]) =>
  AggregatorRegistry.aggregate(all as unknown as object[])

/** Returns the combined counters and histograms of several processes. */
export function countsOf(all: readonly MetricValues[]): MetricValues {
  const values = aggregate(all).getMetricsAsArray() as unknown as MetricValues
  return values.filter(({ type }) => ['counter', 'histogram'].includes(String(type)))
}
