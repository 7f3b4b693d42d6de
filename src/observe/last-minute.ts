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

/** Reads the counters periodically, so that they can be compared with those of a minute ago. */
export function createLastMinute(read: () => Promise<MetricValues>) {
  const samples: { readonly at: number; readonly counts: ReturnType<typeof countsOf> }[] = []
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
      const rows = [...countsOf(values)].map(([key, counts]) => {
        const before = oldest?.counts.get(key)
        const added = [...counts].map(([le, count]) => [le, count - (before?.get(le) ?? 0)] as const)
        const buckets = added.toSorted(([a], [b]) => a - b)
        const [kind, ...labels] = JSON.parse(key) as ['error' | keyof typeof DURATIONS, ...string[]]
        return { kind, labels, buckets, count: buckets.at(-1)![1] }
      })
      const counted = rows.filter(({ count }) => count > 0)
      const errors = counted.flatMap(({ kind, labels: [route = '', code = '', source = ''], count: calls }) =>
        kind === 'error' ? [{ route, code, source, calls }] : [],
      )
      /** `name` is an upstream's. */
      const durations = counted.flatMap(({ kind, labels: [name = ''], buckets, count }) => {
        if (kind === 'error') return []
        const [p50Ms, p99Ms] = [1000 * quantile(buckets, 0.5), 1000 * quantile(buckets, 0.99)]
        return [{ kind, name, count, p50Ms, p99Ms }]
      })
      return {
        seconds: oldest === undefined ? 0 : (performance.now() - oldest.at) / 1000,
        errors: errors.toSorted((a, b) => b.calls - a.calls).slice(0, MAX_ERRORS),
        durations,
      }
    },
    close: () => clearInterval(timer),
  }
}

/**
 * Adds up durations by series, as JSON, and by the upper bound of a bucket; and errors by route,
 * code and source, each in one bucket without a bound.
 */
function countsOf(values: MetricValues) {
  const counts = new Map<string, Map<number, number>>()
  function add(labels: readonly unknown[], le: unknown, value: number): void {
    const key = JSON.stringify(labels.map(String))
    const bound = le === '+Inf' ? Infinity : Number(le)
    const buckets = counts.get(key) ?? new Map<number, number>()
    counts.set(key, buckets.set(bound, (buckets.get(bound) ?? 0) + value))
  }
  const valuesOf = (name: string) => values.find((metric) => metric.name === name)?.values ?? []
  for (const { labels, value } of valuesOf('sluice_http_requests_total'))
    if (Number(labels['code']) >= 400)
      add(['error', labels['route'], labels['code'], labels['source']], '+Inf', value)
  for (const [kind, [name, label]] of Object.entries(DURATIONS))
    for (const { labels, value } of valuesOf(name))
      if (labels['le'] !== undefined) add([kind, label ? labels[label] : ''], labels['le'], value)
  return counts
}

/**
 * Returns a quantile of cumulative buckets, in their unit, by linear interpolation; the last bound
 * for values beyond it.
 */
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
