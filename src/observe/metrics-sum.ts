import { AggregatorRegistry, type MetricObjectWithValues, type MetricValue } from 'prom-client'

/** What one process shows at `/metrics`, as plain values. */
export type MetricValues = readonly MetricObjectWithValues<MetricValue<string>>[]

/** The metrics of several processes as those of one; each metric's `aggregator` says how. */
export function addUp(all: readonly MetricValues[]): MetricValues {
  return registryOf(all).getMetricsAsArray() as unknown as MetricValues
}

/** What only grows: counters, and histograms, which are made of them. */
export function onlyCounts(values: MetricValues): MetricValues {
  return values.filter(({ type }) => ['counter', 'histogram'].includes(String(type)))
}

/** The text of `/metrics`. */
export function textOf(values: MetricValues): Promise<string> {
  return registryOf([values]).metrics()
}

function registryOf(all: readonly MetricValues[]) {
  return AggregatorRegistry.aggregate(all as unknown as object[])
}
