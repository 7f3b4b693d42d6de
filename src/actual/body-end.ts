import { findInEvents } from './event-stream.ts'
import { findAtEnd, type Name, type Written } from './json-end.ts'
import { MAX_TAIL, type Tail } from './tail.ts'

/**
 * Bytes that are looked at before all: usage is near the end of most bodies. In the last chunk it is
 * found without a copy, which takes 4 us of 190 (`bench/used.ts`).
 */
const SHORT_LOOK = 2048

/** The ends of a body that are looked at, in turn. */
const LOOKS: readonly ((tail: Tail) => Buffer)[] = [
  (tail) => tail.newest(SHORT_LOOK),
  (tail) => tail.last(SHORT_LOOK),
  (tail) => tail.last(MAX_TAIL),
]

/**
 * Finds the value at a path in the end of a whole body: of the JSON object that ends it, or of the
 * last event that has one. Returns it as `findAtEnd` does; undefined if there is none.
 */
export function findInBody(tail: Tail, path: readonly Name[], isEventStream: boolean): Written | undefined {
  const find = isEventStream ? findInEvents : findAtEnd
  for (const look of LOOKS) {
    const bytes = look(tail)
    const isCut = bytes.length < tail.total
    const found = find(bytes, path, isCut)
    if (found !== undefined || !isCut) return found
  }
  return undefined
}
