import { findInEvents } from './event-stream.ts'
import { findAtEnd, type Name } from './json-end.ts'
import { MAX_TAIL, type Tail } from './tail.ts'

/**
 * Bytes that are looked at before all: usage is near the end of most bodies. In the last chunk it is
 * found without a copy, which takes 4 us of 190 (`bench/used.ts`).
 */
const SHORT_LOOK = 2048

/**
 * Finds the value at a path in the end of a whole body: of the JSON object that ends it, or of the
 * last event that has one. Returns it as `findAtEnd` does; undefined if there is none.
 */
export function findInBody(tail: Tail, path: readonly Name[], isEventStream: boolean): string | undefined {
  const newest = tail.newest(SHORT_LOOK)
  const found = findIn(newest, tail, path, isEventStream)
  if (found !== undefined || newest.length === tail.total) return found
  return (
    findIn(tail.last(SHORT_LOOK), tail, path, isEventStream) ??
    findIn(tail.last(MAX_TAIL), tail, path, isEventStream)
  )
}

/** Finds the value in the last bytes of a body. */
function findIn(
  bytes: Buffer,
  { total }: Tail,
  path: readonly Name[],
  isEventStream: boolean,
): string | undefined {
  const isCut = bytes.length < total
  return isEventStream ? findInEvents(bytes, path, isCut) : findAtEnd(bytes, path, isCut)
}
