import type { Metric, MetricValue, Registry } from 'prom-client'

type Labels<Label extends string = string> = Readonly<Record<Label, string>>
interface Description<Label extends string = string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
}

/** A node of the tree of label values; `count` is of the label combination that ends here. */
interface Node<Label extends string> {
  /** The values on the way to the node, and with them those that all nodes of its tree have. */
  readonly path: Labels
  readonly labels: Labels<Label>
  readonly depth: number
  readonly next: Map<string, Node<Label>>
  count: number
  /** True if it is shown before its first event. */
  declared: boolean
}

/** The series of a counter with some fixed labels. */
export interface HotCounts {
  /** Adds 1 to the series with these values of the further labels, in their order. */
  inc(...values: readonly string[]): void
  /** Adds a number to the series with these values. */
  add(count: number, ...values: readonly string[]): void
  /** Shows a series with 0 before its first event: Prometheus sees no increase in a series that begins with it. */
  declare(...values: readonly string[]): void
}

/**
 * Registers a counter for the hot path. `inc` takes the values of the labels, in their order, and
 * adds 1 to an integer: prom-client's hash of the labels: +1.2 us a request;
 * `npm run bench:micro -- metrics`. The last labels may be left out. Counters that count fewer events
 * than requests use prom-client's own.
 */
export function createHotCounter<Label extends string>(registry: Registry, about: Description<Label>) {
  const { name, help, labelNames } = about
  const nodes: Node<Label>[] = []

  function addNode(path: Labels, depth: number, after: Labels): Node<Label> {
    const labels = { ...path, ...after } as Labels<Label>
    const node = { path, labels, depth, next: new Map(), count: 0, declared: false }
    nodes.push(node)
    return node
  }
  /** Returns the series that have counted a call. */
  const series = (): readonly Readonly<Node<Label>>[] => nodes.filter(({ count }) => count > 0)
  async function get() {
    const shown = nodes.filter(({ count, declared }) => count > 0 || declared)
    const values = shown.map(({ labels, count }) => ({ labels, value: count }))
    return { name, help, type: 'counter', aggregator: 'sum', values }
  }
  registry.registerMetric({ name, get } as unknown as Metric)

  /** Returns the series that have the labels `before` first, and `after` last. */
  function under(before: Labels, after: Labels): HotCounts {
    const root = addNode(before, 0, after)
    function nodeOf(values: readonly string[]): Node<Label> {
      let node = root
      for (const value of values) node = node.next.get(value) ?? branch(node, value)
      return node
    }
    function branch({ path, depth, next }: Node<Label>, value: string): Node<Label> {
      const node = addNode({ ...path, [labelNames[depth]!]: value }, depth + 1, after)
      next.set(value, node)
      return node
    }
    return {
      inc: (...values) => void nodeOf(values).count++,
      add: (count, ...values) => void (nodeOf(values).count += count),
      declare: (...values) => void (nodeOf(values).declared = true),
    }
  }

  return { ...under({}, {}), under, series }
}

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
  about: Omit<Description, 'labelNames'>,
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
