import type { Metric, MetricValue, Registry } from 'prom-client'

type Description<Label extends string = string> = { name: string; help: string; labelNames: readonly Label[] }

/** A node of the tree of label values; `count` is of the label combination that ends here. */
interface Node<Label extends string> {
  readonly labels: Readonly<Record<Label, string>>
  readonly next: Map<string, Node<Label>>
  count: number
  /** True if it is shown before its first event. */
  declared: boolean
}

/**
 * Registers a counter for the hot path. `inc` takes the values of the labels, in their order, and
 * adds 1 to an integer: prom-client's hash of the labels: +1.2 us a request;
 * `npm run bench:micro -- metrics`. Counters that count fewer events than requests use
 * prom-client's own.
 */
export function createHotCounter<Label extends string>(registry: Registry, about: Description<Label>) {
  const { name, help, labelNames } = about
  const root: Node<Label> = {
    labels: {} as Node<Label>['labels'],
    next: new Map(),
    count: 0,
    declared: false,
  }
  const nodes: Node<Label>[] = []
  function addNode({ labels, next }: Node<Label>, value: string): Node<Label> {
    const label = labelNames[Object.keys(labels).length]!
    const node = { labels: { ...labels, [label]: value }, next: new Map(), count: 0, declared: false }
    next.set(value, node)
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

  function nodeOf(values: readonly string[]): Node<Label> {
    let node = root
    for (const value of values) node = node.next.get(value) ?? addNode(node, value)
    return node
  }

  return {
    inc(...values: readonly string[]): void {
      nodeOf(values).count++
    },
    /** Shows a series with 0 before its first event: Prometheus sees no increase in a series that begins with it. */
    declare(...values: readonly string[]): void {
      nodeOf(values).declared = true
    },
    series,
  }
}

/** The durations with one value of the label. */
interface DurationSeries {
  readonly label: string
  /** The count of each bucket, and of longer durations. */
  readonly counts: number[]
  sum: number
}

/** Registers a histogram for the hot path, with at most one label; `buckets` are upper bounds in seconds, ascending. */
export function createHotHistogram(registry: Registry, about: Description, buckets: readonly number[]) {
  const { name, help, labelNames } = about
  const [labelName] = labelNames
  const byLabel = new Map<string, DurationSeries>()
  function addSeries(label: string): DurationSeries {
    const added = { label, counts: Array<number>(buckets.length + 1).fill(0), sum: 0 }
    byLabel.set(label, added)
    return added
  }
  // Without a label, zeros are shown before the first observation.
  if (labelName === undefined) addSeries('')

  async function get() {
    const values: (MetricValue<string> & { readonly metricName: string })[] = []
    for (const { label, counts, sum } of byLabel.values()) {
      const labels = labelName === undefined ? {} : { [labelName]: label }
      let total = 0
      for (const [i, count] of counts.entries()) {
        total += count
        const le = buckets[i] ?? '+Inf'
        values.push({ metricName: `${name}_bucket`, labels: { le, ...labels }, value: total })
      }
      values.push({ metricName: `${name}_sum`, labels, value: sum })
      values.push({ metricName: `${name}_count`, labels, value: total })
    }
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
  registry.registerMetric({ name, get } as unknown as Metric)

  return {
    observe(seconds: number, label = ''): void {
      const observed = byLabel.get(label) ?? addSeries(label)
      let bucket = 0
      while (seconds > buckets[bucket]!) bucket++
      observed.counts[bucket]!++
      observed.sum += seconds
    },
    series: (): readonly Readonly<DurationSeries>[] => [...byLabel.values()],
  }
}
