import { type Metrics, REQUEST_BUCKETS, STORE_BUCKETS } from '../../observe/metrics.ts'
import { addUp, mergeBy, sum } from '../../runtime/merge.ts'

const EVERY_MS = 10_000
const SAMPLES = 6
const MAX_ERRORS = 20

/** What a process, or several, have counted in the last minute, or since their start. */
export interface MinuteCounts {
  /** Responses with a status of 400 or above; `source` is `gateway` or `upstream`. */
  readonly errors: readonly ({ readonly calls: number } & Record<'route' | 'code' | 'source', string>)[]
  readonly durations: readonly DurationCounts[]
}

/** Durations of requests to their end, of requests to an upstream until its head, or of decisions of the store. */
interface DurationCounts {
  readonly kind: 'requests' | 'upstream' | 'store'
  /** The upstream; else empty. */
  readonly name: string
  /** The count of each bucket of the histogram, and of longer durations. */
  readonly counts: readonly number[]
}

/** The errors of the last minute, the most frequent first, and its durations. */
export type LastMinute = Readonly<ReturnType<typeof showMinute>>

/** Reads the counters of this process periodically, to compare them with those of a minute ago. */
export function createLastMinute({ requests, requestSeconds, upstreamSeconds, storeSeconds }: Metrics) {
  const readErrors = () => requests.series().filter(({ labels }) => Number(labels.code) >= 400)
  const histograms = [
    ['requests', requestSeconds],
    ['upstream', upstreamSeconds],
    ['store', storeSeconds],
  ] as const
  /** Copies the counts of all series. */
  function sample() {
    const durations = histograms.flatMap(([, histogram]) => histogram.series())
    return {
      errors: new Map(readErrors().map((series) => [series, series.count])),
      durations: new Map(durations.map((series) => [series, [...series.counts]])),
    }
  }
  const samples = [sample()]
  const timer = setInterval(() => {
    samples.push(sample())
    if (samples.length > SAMPLES) samples.shift()
  }, EVERY_MS).unref()

  return {
    /** Returns what has been counted since the oldest sample. */
    counts(): MinuteCounts {
      const before = samples[0]!
      return {
        errors: readErrors().map((series) => {
          const { route, code, source } = series.labels
          return { route, code, source, calls: series.count - (before.errors.get(series) ?? 0) }
        }),
        durations: histograms.flatMap(([kind, histogram]) =>
          histogram.series().map((series) => {
            const earlier = before.durations.get(series)
            const counts = series.counts.map((count, i) => count - (earlier?.[i] ?? 0))
            return { kind, name: kind === 'upstream' ? series.label : '', counts }
          }),
        ),
      }
    },
    close: () => clearInterval(timer),
  }
}

/** Adds up the counts of several processes. */
export const mergeMinutes = (all: readonly MinuteCounts[]): MinuteCounts => ({
  errors: mergeBy(
    all.flatMap(({ errors }) => errors),
    ({ route, code, source }) => `${code} ${source} ${route}`,
    (a, b) => ({ ...a, calls: a.calls + b.calls }),
  ),
  durations: mergeBy(
    all.flatMap(({ durations }) => durations),
    ({ kind, name }) => `${kind} ${name}`,
    (a, b) => ({ ...a, counts: addUp([a.counts, b.counts]) }),
  ),
})

/** Selects the most frequent errors, and computes quantiles of the durations. */
export function showMinute(counted: MinuteCounts) {
  const { errors, durations } = mergeMinutes([counted])
  return {
    errors: errors
      .filter(({ calls }) => calls > 0)
      .toSorted((a, b) => b.calls - a.calls)
      .slice(0, MAX_ERRORS),
    durations: durations.map(durationOf).filter(({ count }) => count > 0),
  }
}

function durationOf({ kind, name, counts }: DurationCounts) {
  const bounds = kind === 'store' ? STORE_BUCKETS : REQUEST_BUCKETS
  const p50Ms = 1000 * quantile(counts, bounds, 0.5)
  const p99Ms = 1000 * quantile(counts, bounds, 0.99)
  return { kind, name, count: sum(counts), p50Ms, p99Ms }
}

/** Returns a quantile of durations, in the unit of the bounds, by linear interpolation; the last bound for longer ones. */
function quantile(counts: readonly number[], bounds: readonly number[], part: number): number {
  const rank = part * sum(counts)
  let lower = 0
  let below = 0
  for (const [i, upper] of bounds.entries()) {
    const count = counts[i] ?? 0
    if (below + count >= rank) return lower + ((upper - lower) * (rank - below)) / Math.max(1, count)
    lower = upper
    below += count
  }
  return lower
}
