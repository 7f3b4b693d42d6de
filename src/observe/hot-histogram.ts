import type { Metric, MetricValue, Registry } from 'prom-client'

type Labels = Readonly<Record<string, string>>

/** A traced call of a bucket, as OpenMetrics shows it; `timestamp` is in epoch seconds. */
export interface Exemplar {
  readonly labelSet: Labels
  readonly value: number
  readonly timestamp: number
}

interface HistogramValue extends MetricValue<string> {
  readonly metricName: string
  readonly exemplar?: Exemplar
}

/** The durations with the same labels. */
export class Durations {
  readonly labels: Labels
  /** The count of each bucket, and of longer durations. */
  readonly counts: number[]
  /** The last traced call of each bucket. */
  readonly exemplars: (Exemplar | undefined)[] = []
  sum = 0
  readonly #buckets: readonly number[]

  constructor(labels: Labels, buckets: readonly number[]) {
    this.labels = labels
    this.#buckets = buckets
    this.counts = Array<number>(buckets.length + 1).fill(0)
  }

  /** Counts a duration; `traceId` is that of a sampled trace. */
  observe(seconds: number, traceId?: string): void {
    let bucket = 0
    while (seconds > this.#buckets[bucket]!) bucket++
    this.counts[bucket]!++
    this.sum += seconds
    if (traceId === undefined) return
    const timestamp = Date.now() / 1000
    this.exemplars[bucket] = { labelSet: { trace_id: traceId }, value: seconds, timestamp }
  }
}

/** Registers a histogram for the hot path; `buckets` are upper bounds in seconds, ascending. */
export function createHotHistogram(
  registry: Registry,
  about: { readonly name: string; readonly help: string },
  buckets: readonly number[],
) {
  const { name, help } = about
  const all = new Map<string, Durations>()

  async function get() {
    const values: HistogramValue[] = []
    for (const { labels, counts, exemplars, sum } of all.values()) {
      let total = 0
      for (const [i, count] of counts.entries()) {
        total += count
        const [le, exemplar] = [buckets[i] ?? '+Inf', exemplars[i]]
        const value = { metricName: `${name}_bucket`, labels: { le, ...labels }, value: total }
        values.push(exemplar === undefined ? value : { ...value, exemplar })
      }
      values.push({ metricName: `${name}_sum`, labels, value: sum })
      values.push({ metricName: `${name}_count`, labels, value: total })
    }
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
  registry.registerMetric({ name, get } as unknown as Metric)

  return {
    /** Returns the durations with these labels, which are shown from now on; the same ones for the same labels. */
    of(labels: Labels = {}): Durations {
      const id = JSON.stringify(labels)
      const known = all.get(id)
      if (known !== undefined) return known
      const added = new Durations(labels, buckets)
      all.set(id, added)
      return added
    },
    series: (): readonly Readonly<Durations>[] => [...all.values()],
  }
}
