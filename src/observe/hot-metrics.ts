import { Counter, type Histogram, type MetricValue, type Registry } from 'prom-client'

/** The count of a label's value, after those of the labels before it. */
interface Cell {
  readonly values: readonly string[]
  readonly next: Map<string, Cell>
  pending: number
}

/**
 * Registers a counter for the hot path; what is counted less often than per request uses prom-client's own. `inc` takes the
 * values of the labels, in their order, and adds one in plain numbers; prom-client gets them when the metrics are read, as its
 * hash of the labels costs more than all else that is counted.
 */
export function createHotCounter(registry: Registry, name: string, help: string, ...labelNames: string[]) {
  const root: Cell = { values: [], next: new Map(), pending: 0 }
  const cells: Cell[] = []
  const counter = new Counter({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      for (const cell of cells) {
        const labels = cell.values.map((value, i) => [labelNames[i]!, value] as const)
        if (cell.pending > 0) counter.inc(Object.fromEntries(labels), cell.pending)
        cell.pending = 0
      }
    },
  })
  function grow({ values, next }: Cell, value: string): Cell {
    const cell: Cell = { values: [...values, value], next: new Map(), pending: 0 }
    next.set(value, cell)
    cells.push(cell)
    return cell
  }
  return {
    inc(...values: readonly string[]): void {
      let cell = root
      for (const value of values) cell = cell.next.get(value) ?? grow(cell, value)
      cell.pending++
    },
  }
}

type HistogramValue = MetricValue<string> & { readonly metricName?: string }

/** Registers a histogram for the hot path, with one label at most; `buckets` are upper bounds in seconds, ascending. */
export function createHotHistogram(
  registry: Registry,
  name: string,
  help: string,
  buckets: readonly number[],
  label?: string,
) {
  /** By the label's value: how many were in each bucket, and beyond the last; and how long all took. */
  const series = new Map<string, { readonly counts: number[]; sum: number }>()
  function seriesOf(value: string) {
    let one = series.get(value)
    if (one === undefined) series.set(value, (one = { counts: Array(buckets.length + 1).fill(0), sum: 0 }))
    return one
  }
  // Without a label, it is shown before anything was counted.
  if (label === undefined) seriesOf('')

  async function get() {
    const values: HistogramValue[] = []
    for (const [value, { counts, sum }] of series) {
      const labels = label === undefined ? {} : { [label]: value }
      let count = 0
      for (const [i, more] of counts.entries()) {
        const le = buckets[i] ?? '+Inf'
        values.push({ metricName: `${name}_bucket`, labels: { le, ...labels }, value: (count += more) })
      }
      values.push({ metricName: `${name}_sum`, labels, value: sum })
      values.push({ metricName: `${name}_count`, labels, value: count })
    }
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
  registry.registerMetric({ name, get } as unknown as Histogram)

  return {
    /** Counts one duration; the value is that of the label. */
    observe(seconds: number, value = ''): void {
      const one = seriesOf(value)
      let bucket = 0
      while (seconds > buckets[bucket]!) bucket++
      one.counts[bucket]!++
      one.sum += seconds
    },
  }
}
