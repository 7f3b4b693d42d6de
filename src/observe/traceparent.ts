/** W3C Trace Context section 3.2; later versions may have more behind the flags. Ids of zeros alone are none. */
const TRACEPARENT =
  /^(?!ff)(?!00-.{53})[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?:$|-)/

/** Parses the `traceparent` of a request; undefined if there is none, or a malformed one. */
export function parseTraceparent(value: unknown) {
  const [, traceId, spanId, flags] = typeof value === 'string' ? (TRACEPARENT.exec(value) ?? []) : []
  if (traceId === undefined) return undefined
  return { traceId, spanId: spanId!, flags: Number.parseInt(flags!, 16) }
}
