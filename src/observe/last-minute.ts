import type { MetricValues } from './metrics.ts'

const EVERY_MS = 10_000
const SAMPLES = 6
const MAX_ERRORS = 20
/** The histograms of durations, and the label that separates their series. */
const DURATIONS = {
  requests: ['sluice_http_request_duration_seconds', undefined],
  upstream: ['sluice_upstream_duration_seconds', 'upstream'],
  store: ['sluice_store_duration_seconds', undefined],
} as const

/** Counts since the start, by the JSON of their labels. */
type Counts = Map<string, number>

interface Sample {
  readonly at: number
  readonly counts: Counts
}

/** Reads the counters periodically, so that they can be compared with those of a minute ago. */
export function createLastMinute(read: () => Promise<MetricValues>) {
  const samples: Sample[] = []
  async function sample(): Promise<void> {
    const values = await read().catch(() => [])
    samples.push({ at: performance.now(), counts: countsOf(values) })
    if (samples.length > SAMPLES) samples.shift()
  }
  const timer = setInterval(() => void sample(), EVERY_MS).unref()
  void sample()

  return {
    /** Returns what has been counted since the oldest sample: errors, the most frequent first, and durations. */
    since(values: MetricValues) {
      const [oldest] = samples
      const counts = countsOf(values)
      const rows = [...counts].map(([key, count]) => ({
        labels: JSON.parse(key) as readonly string[],
        count: count - (oldest?.counts.get(key) ?? 0),
      }))
      const errors = rows.flatMap(({ labels: [kind, route = '', code = '', source = ''], count }) =>
        kind === 'error' && count > 0 ? [{ route, code, source, calls: count }] : [],
      )
      return {
        seconds: oldest === undefined ? 0 : (performance.now() - oldest.at) / 1000,
        errors: errors.toSorted((a, b) => b.calls - a.calls).slice(0, MAX_ERRORS),
        durations: durationsOf(rows),
      }
    },
    close: () => clearInterval(timer),
  }
}

/** Adds up responses with errors by route, code and source, and durations by series and bucket. */
function countsOf(values: MetricValues): Counts {
  const counts: Counts = new Map()
  const add = (labels: readonly unknown[], value: number): void => {
    const key = JSON.stringify(labels.map(String))
    counts.set(key, (counts.get(key) ?? 0) + value)
  }
  const valuesOf = (name: string) => values.find((metric) => metric.name === name)?.values ?? []
  for (const { labels, value } of valuesOf('sluice_http_requests_total'))
    if (Number(labels['code']) >= 400)
      add(['error', labels['route'], labels['code'], labels['source']], value)
  for (const [kind, [name, label]] of Object.entries(DURATIONS))
    for (const { labels, value } of valuesOf(name))
      if (labels['le'] !== undefined) add([kind, label ? labels[label] : '', labels['le']], value)
  return counts
}

/** Returns the durations of each series that was observed; `name` is an upstream's. */
function durationsOf(rows: readonly { readonly labels: readonly string[]; readonly count: number }[]) {
  const series = new Map<string, (readonly [le: number, count: number])[]>()
  for (const { labels, count } of rows) {
    const [kind = '', name, le] = labels
    if (!(kind in DURATIONS)) continue
    const key = JSON.stringify([kind, name])
    series.set(key, [...(series.get(key) ?? []), [le === '+Inf' ? Infinity : Number(le), count]])
  }
  return [...series].flatMap(([key, unsorted]) => {
    const [kind, name] = JSON.parse(key) as [keyof typeof DURATIONS, string]
    const buckets = unsorted.toSorted(([a], [b]) => a - b)
    const [, count] = buckets.at(-1)!
    if (count <= 0) return []
    return [
      { kind, name, count, p50Ms: 1000 * quantile(buckets, 0.5), p99Ms: 1000 * quantile(buckets, 0.99) },
    ]
  })
}

/** Returns a quantile of cumulative buckets, in their unit, by linear interpolation; the last bound for values beyond it. */
function quantile(buckets: readonly (readonly [le: number, count: number])[], part: number): number {
  const rank = part * buckets.at(-1)![1]
  let [lower, below] = [0, 0]
  for (const [le, count] of buckets) {
    if (le === Infinity) return lower
    if (count >= rank) return lower + ((le - lower) * (rank - below)) / Math.max(1, count - below)
    ;[lower, below] = [le, count]
  }
  return lower
}
