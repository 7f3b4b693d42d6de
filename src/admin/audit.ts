import { createLogSampler } from '../observe/access-log.ts'
import { networkOf } from '../runtime/address.ts'
import type { AdminResponse } from './access.ts'
import type { OperationName } from './rights.ts'

/** One change of a limit, or of the counters of a caller, as far as it is known. */
export interface AuditedChange {
  readonly limit?: string
  /** The calls that the limit allowed before and after; null if it is not configured any more. */
  readonly before?: number | null
  readonly after?: number | null
  /** The number that was requested, null for the limit of the file; only of a change that failed. */
  readonly requested?: number | null
  /** The end of the override, ISO 8601; null without an end. */
  readonly until?: string | null
  readonly note?: string | undefined
  /** The number of deleted counters. */
  readonly freed?: number
}

/** A request as the audit describes it; its parts become known while it is served. */
export interface Attempt {
  readonly operation: OperationName | 'other'
  readonly address: string
  /** The recognised operator. */
  name: string | null
  /** The caller whose limits are concerned, as it may be shown. */
  caller?: string
  /** The changes of a request that may change several limits; empty for other requests. */
  changes: readonly AuditedChange[]
}

export type AuditResult = 'done' | 'refused' | 'invalid' | 'failed'
export const AUDIT_RESULTS = ['done', 'refused', 'invalid', 'failed'] as const satisfies AuditResult[]

const REFUSALS = new Set([401, 403, 429])
const MAX_CHARS = 300

/** Returns the result of a request by the status of its response. */
export function resultOf(status: number): AuditResult {
  if (REFUSALS.has(status)) return 'refused'
  if (status >= 500) return 'failed'
  return status >= 400 ? 'invalid' : 'done'
}

/**
 * Creates the audit of the admin listener: `write` gets the fields of a line for each change, and
 * for each refused request. Anyone can cause refusals, so those of one address, name, operation and
 * status have at most one line a second, with the number of `attempts`.
 */
export function createAudit(write: (fields: object) => void) {
  const refusals = createLogSampler(
    (fields: object) => fields,
    (fields, omitted) => write({ ...fields, attempts: omitted + 1 }),
  )

  return {
    record(attempt: Attempt, { status, body }: AdminResponse): void {
      const { operation, address, name, caller, changes } = attempt
      const result = resultOf(status)
      const fields = { name, address, operation, result, caller: caller?.slice(0, MAX_CHARS) }
      if (result === 'refused') {
        const reason = typeof body === 'string' ? body.trim() : (body as { detail?: string }).detail
        const limits = changes.map(({ limit }) => limit).join(', ')
        const limit = limits === '' ? undefined : limits.slice(0, MAX_CHARS)
        const key = [networkOf(address), name, operation, status].join(' ')
        refusals.add(key, { ...fields, limit, status, reason }, performance.now())
      } else if (result !== 'invalid') for (const change of changes) write({ ...fields, ...change })
    },
    /** Writes the refusals that are not written yet. */
    close: refusals.close,
  }
}
