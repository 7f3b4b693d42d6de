/** Interval in which a key has at most one line, in milliseconds. */
const INTERVAL_MS = 1000
/** Maximum sampled keys; the lines of further keys are all written. */
const MAX_KEYS = 10_000

interface Entry {
  /** The instant until which lines are omitted. */
  until: number
  omitted: number
  line: string
}

/**
 * Writes the first line of each key, and then at most one a second, with the number of lines omitted before it. If no line follows
 * within the second, the first omitted line is written, with the number of the others. Instants are `performance.now()`.
 */
export function createLogSampler<Item>(
  lineOf: (item: Item) => string,
  write: (line: string, omitted: number) => void,
) {
  const entries = new Map<string, Entry>()
  const timer = setInterval(() => sweep(performance.now()), INTERVAL_MS).unref()

  const begin = (now: number): Entry => ({ until: now + INTERVAL_MS, omitted: 0, line: '' })

  function sweep(now: number): void {
    for (const [key, { until, omitted, line }] of entries) {
      if (until > now) continue
      if (omitted === 0) entries.delete(key)
      else {
        write(line, omitted - 1)
        entries.set(key, begin(now))
      }
    }
  }

  return {
    add(key: string, item: Item, now: number): void {
      const entry = entries.get(key)
      if (entry !== undefined && entry.until > now) {
        if (entry.omitted++ === 0) entry.line = lineOf(item)
        return
      }
      write(lineOf(item), entry?.omitted ?? 0)
      if (entry !== undefined || entries.size < MAX_KEYS) entries.set(key, begin(now))
    },
    sweep,
    /** Writes all omitted lines that are pending. */
    close(): void {
      clearInterval(timer)
      sweep(Infinity)
    },
  }
}
