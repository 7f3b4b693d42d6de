import { Counter, type Histogram, type MetricValue, type Registry } from 'prom-client'

/** What a metric is called, and the name of each label. */
interface Told {
  readonly name: string
  readonly help: string
  readonly labelNames?: readonly string[]
}

/** A counter for the path of every request. */
export interface Tally {
  /** Counts one; the values are those of the labels, in their order. */
  inc(...values: readonly string[]): void
}

/** A histogram for the path of every request, with one label at most. */
export interface Durations {
  /** Counts one that took so long; the value is that of the label. */
  observe(seconds: number, value?: string): void
}

/** Counts in plain numbers and tells prom-client when it is asked: hashing labels costs more than all else that is counted. */
export function tally(registry: Registry, { name, help, labelNames = [] }: Told): Tally {
  const counts = new Map<string, { readonly labels: Record<string, string>; pending: number }>()
  const counter = new Counter({
    name,
    help,
    labelNames: [...labelNames],
    registers: [registry],
    collect() {
      for (const one of counts.values()) {
        if (one.pending > 0) counter.inc(one.labels, one.pending)
        one.pending = 0
      }
    },
  })
  return {
    inc(...values) {
      const key = values.join('\n')
      let one = counts.get(key)
      if (one === undefined) {
        one = { labels: Object.fromEntries(labelNames.map((label, i) => [label, values[i]!])), pending: 0 }
        counts.set(key, one)
      }
      one.pending++
    },
  }
}

/** The same for a histogram: `buckets` are upper bounds in seconds, in their order. */
export function durations(
  registry: Registry,
  { name, help, labelNames: [label] = [], buckets }: Told & { readonly buckets: readonly number[] },
): Durations {
  /** How many were in each bucket, and beyond the last; and how long all took. */
  const series = new Map<string, { readonly counts: number[]; sum: number }>()
  const seriesOf = (value: string) => {
    let one = series.get(value)
    if (one === undefined) series.set(value, (one = { counts: Array(buckets.length + 1).fill(0), sum: 0 }))
    return one
  }
  // What has no label is shown before anything took any time.
  if (label === undefined) seriesOf('')

  function valuesOf(value: string, counts: readonly number[], sum: number): HistogramValue[] {
    const labels = label === undefined ? {} : { [label]: value }
    let count = 0
    const bars = counts.map((more, i) => ({
      metricName: `${name}_bucket`,
      labels: { le: buckets[i] ?? '+Inf', ...labels },
      value: (count += more),
    }))
    return [
      ...bars,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ]
  }
  const get = async () => ({
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    values: [...series].flatMap(([value, { counts, sum }]) => valuesOf(value, counts, sum)),
  })
  registry.registerMetric({ name, get } as unknown as Histogram)

  return {
    observe(seconds, value = '') {
      const one = seriesOf(value)
      let bucket = 0
      while (seconds > buckets[bucket]!) bucket++
      one.counts[bucket]!++
      one.sum += seconds
    },
  }
}

type HistogramValue = MetricValue<string> & { readonly metricName: string }
