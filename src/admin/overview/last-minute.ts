import { type Metrics, STORE_BUCKETS } from '../../observe/metrics.ts'
import { REQUEST_BUCKETS } from '../../observe/request-metrics.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { addCalls, addUp, mergeLists, sum } from '../../runtime/merge.ts'

const EVERY_MS = 10_000
const SAMPLES = 6
const MAX_ERRORS = 20

/** The counts of a process, or of several, in the last minute or since their start. */
export interface MinuteCounts {
  /** Responses with a status of 400 or above; `source` is `gateway` or `upstream`. */
  readonly errors: readonly ({ calls: number } & Record<'route' | 'code' | 'source', string>)[]
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
  /** Returns what has been counted since the start. */
  function read(): MinuteCounts {
    const errors = requests.series().filter(({ labels }) => Number(labels.code) >= 400)
    // Of 10,000 routes, the counts of each would be megabytes for each sample.
    const ofRoutes = addUp(requestSeconds.series().map(({ counts }) => counts))
    return {
      errors: errors.map(({ labels: { route, code, source }, count }) => {
        return { route, code, source, calls: count }
      }),
      durations: [
        { kind: 'requests', name: '', counts: ofRoutes },
        ...upstreamSeconds.series().map(({ labels, counts }) => {
          return { kind: 'upstream', name: labels['upstream']!, counts: [...counts] } as const
        }),
        { kind: 'store', name: '', counts: [...storeSeconds.counts] },
      ],
    }
  }
  let samples = [read()]
  const stop = SYSTEM_CLOCK.every(EVERY_MS, () => (samples = [...samples, read()].slice(-SAMPLES)))

  return {
    /** Returns what has been counted since the oldest sample. */
    counts: () => minus(read(), samples[0]!),
    close: stop,
  }
}

/** Returns what has been counted from `then` to `now`: counts that are new since `then` had none. */
const minus = (now: MinuteCounts, then: MinuteCounts): MinuteCounts =>
  mergeMinutes([
    now,
    {
      errors: then.errors.map((row) => ({ ...row, calls: -row.calls })),
      durations: then.durations.map((row) => ({ ...row, counts: row.counts.map((count) => -count) })),
    },
  ])

/** Adds up the counts of several processes. */
export const mergeMinutes = (all: readonly MinuteCounts[]): MinuteCounts => ({
  errors: mergeLists(all, 'errors', ['code', 'source', 'route'], addCalls),
  durations: mergeLists(all, 'durations', ['kind', 'name'], (a, b) => ({
    ...a,
    counts: addUp([a.counts, b.counts]),
  })),
})

/** Selects the most frequent errors, and computes quantiles of the durations. */
export function showMinute({ errors, durations }: MinuteCounts) {
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

/**
 * Returns a quantile of durations, in the unit of the bounds, by linear interpolation; the last bound
 * for longer ones.
 */
function quantile(counts: readonly number[], bounds: readonly number[], part: number): number {
  const rank = part * sum(counts)
  let below = 0
  for (const [i, upper] of bounds.entries()) {
    const [lower, count] = [bounds[i - 1] ?? 0, counts[i]!]
    if (below + count >= rank) return lower + ((upper - lower) * (rank - below)) / Math.max(1, count)
    below += count
  }
  return bounds.at(-1)!
}
