import { HOP_BY_HOP } from '../downstream/request-fields.ts'
import { memoize } from '../runtime/memoize.ts'

/** Response fields that the gateway replaces on limited routes. */
const RATE_LIMIT: ReadonlySet<string> = new Set([
  ...['ratelimit', 'ratelimit-limit', 'ratelimit-policy', 'ratelimit-remaining', 'ratelimit-reset'],
  ...['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'],
])

const READ_FIELDS = ['content-length', 'date', 'keep-alive', 'transfer-encoding'] as const

export type ResponseFields = ReturnType<typeof createResponseFields>

/** Creates the kinds of response fields; `requestId` is the name of the field of the request id. */
export function createResponseFields(requestId: string) {
  const idField = requestId.toLowerCase()

  /**
   * Returns the kind of a response field, in any case: `keep` is forwarded, `drop` is not, the
   * others are read by name.
   */
  function kindOf(name: string) {
    const lower = name.toLowerCase()
    if (lower === idField) return 'request-id'
    if (RATE_LIMIT.has(lower)) return 'rate-limit'
    return READ_FIELDS.find((field) => field === lower) ?? (HOP_BY_HOP.has(lower) ? 'drop' : 'keep')
  }
  return { requestId, idField, kindOf: memoize(kindOf, 1000, 64) }
}
