/** A key has at most one line in this time. */
const EVERY_MS = 1000
/** Keys that are sampled at a time; beyond, every line is written. */
const MAX_KEYS = 10_000

interface Entry {
  /** Until then, lines are left out. */
  until: number
  omitted: number
  /** Of the first that was left out. */
  line: string
}

/**
 * Writes the first line of each key, and then at most one a second, with how many were left out before it. What no later line
 * counts is written, after its second, as the line of the first that was left out, and the number of the others. Instants are
 * `performance.now()`.
 */
export function createLogSampler<Item>(
  lineOf: (item: Item) => string,
  write: (line: string, omitted: number) => void,
) {
  const entries = new Map<string, Entry>()
  const timer = setInterval(() => sweep(performance.now()), EVERY_MS).unref()

  function sweep(now: number): void {
    for (const [key, entry] of entries) {
      if (entry.until > now) continue
      if (entry.omitted === 0) entries.delete(key)
      else {
        write(entry.line, entry.omitted - 1)
        begin(entry, now)
      }
    }
  }

  function begin(entry: Entry, now: number): void {
    entry.until = now + EVERY_MS
    entry.omitted = 0
    entry.line = ''
  }

  return {
    take(key: string, item: Item, now: number): void {
      const entry = entries.get(key)
      if (entry === undefined) {
        write(lineOf(item), 0)
        if (entries.size < MAX_KEYS) entries.set(key, { until: now + EVERY_MS, omitted: 0, line: '' })
      } else if (entry.until <= now) {
        write(lineOf(item), entry.omitted)
        begin(entry, now)
      } else if (entry.omitted++ === 0) entry.line = lineOf(item)
    },
    sweep,
    /** Writes what is left. */
    close(): void {
      clearInterval(timer)
      sweep(Infinity)
    },
  }
}
