/** W3C Trace Context section 3.2; later versions may append fields. Ids of only zeros are invalid. */
const TRACEPARENT =
  /^(?!ff)(?!00-.{53})[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?:$|-)/

/** The only flag that is passed on. */
const SAMPLED = 1

/** Parses a `traceparent` field; null if it is absent or malformed. */
export function parseTraceparent(value: unknown) {
  const match = typeof value === 'string' ? TRACEPARENT.exec(value) : null
  if (match === null) return null
  const [, traceId = '', spanId = '', flags = ''] = match
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & SAMPLED }
}
