import { findInEvents } from './event-stream.ts'
import { findAtEnd, type Name } from './json-end.ts'
import { MAX_TAIL, type Tail } from './tail.ts'

/** Bytes that are looked at first: usage is near the end of most bodies, and these are rarely copied. */
const FIRST_LOOK = 2048

/**
 * Finds the value at a path in the end of a whole body: of the JSON object that ends it, or of the
 * last event that has one. Returns it as `findAtEnd` does; undefined if there is none.
 */
export function findInBody(tail: Tail, path: readonly Name[], isEventStream: boolean): string | undefined {
  const find = isEventStream ? findInEvents : findAtEnd
  for (const max of [FIRST_LOOK, MAX_TAIL]) {
    const bytes = tail.last(max)
    const found = find(bytes, path, bytes.length < tail.total)
    if (found !== undefined || bytes.length < max) return found
  }
  return undefined
}
