/** Gives out what lies lowest first; of what lies alike, what came first. */
export interface Heap<T> {
  readonly size: number
  /** Where the lowest lies; Infinity where there is none. */
  readonly lowest: number
  push(at: number, value: T): void
  /** Takes out the lowest; there must be one. */
  pop(): T
}

interface Entry<T> {
  readonly at: number
  readonly nth: number
  readonly value: T
}

export function createHeap<T>(): Heap<T> {
  const entries: Entry<T>[] = []
  let pushed = 0

  function isBefore(a: Entry<T>, b: Entry<T>): boolean {
    return a.at < b.at || (a.at === b.at && a.nth < b.nth)
  }

  return {
    get size() {
      return entries.length
    },
    get lowest() {
      return entries[0]?.at ?? Infinity
    },
    push(at, value) {
      const entry = { at, nth: pushed++, value }
      let place = entries.length
      while (place > 0) {
        const above = (place - 1) >> 1
        if (!isBefore(entry, entries[above]!)) break
        entries[place] = entries[above]!
        place = above
      }
      entries[place] = entry
    },
    pop() {
      const { value } = entries[0]!
      const last = entries.pop()!
      const { length } = entries
      if (length === 0) return value
      let place = 0
      for (;;) {
        let below = 2 * place + 1
        if (below >= length) break
        if (below + 1 < length && isBefore(entries[below + 1]!, entries[below]!)) below++
        if (!isBefore(entries[below]!, last)) break
        entries[place] = entries[below]!
        place = below
      }
      entries[place] = last
      return value
    },
  }
}
