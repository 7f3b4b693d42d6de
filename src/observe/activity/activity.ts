import type { Exchange } from '../../gateway/exchange.ts'
import { ipPart } from '../../limit/key.ts'
import { CALLER_SECONDS, createRing, createSketch, type Entry, type LatestAllowance } from './sketch.ts'
import { type ActivityValues, busiest, callerValues } from './values.ts'

export type Activity = ReturnType<typeof createActivity>

const TOTAL_SECONDS = 300

/** Tracks what all callers and the busiest callers do, in constant memory. `now` is in milliseconds, like `performance.now`. */
export function createActivity(now = () => performance.now()) {
  const sketch = createSketch(now())
  const requests = createRing(TOTAL_SECONDS)
  const refused = createRing(TOTAL_SECONDS)
  const failed = createRing(TOTAL_SECONDS)

  return {
    /** Counts a finished request: for its client or, if it is limited without a client, for its address. */
    count(exchange: Exchange, status: number): void {
      const { caller, quotas, decision, endedAt } = exchange
      const second = Math.floor(endedAt / 1000)
      const isRefused = decision?.admitted === false
      requests.add(second)
      if (isRefused) refused.add(second)
      else if (status >= 500) failed.add(second)
      if (caller === undefined || (caller.client === undefined && quotas.length === 0)) return
      const { client, ip } = caller
      const entry =
        client === undefined
          ? sketch.count('address', ipPart(ip), isRefused, endedAt)
          : sketch.count('client', client, isRefused, endedAt)
      if (entry !== undefined && decision !== undefined) recordDecision(entry, exchange, second)
    },
    /** Drops the allowances and the refusal of a client whose limits have changed or were reset. */
    forget(client: string): void {
      const entry = sketch.ofClient(client)
      if (entry === undefined) return
      entry.limits.length = 0
      entry.refusal = undefined
    },
    values(): ActivityValues {
      const at = now()
      const second = Math.floor(at / 1000)
      return {
        requests: requests.before(second),
        refused: refused.before(second),
        failed: failed.before(second),
        ...busiest(sketch.entries.map((entry) => callerValues(entry, at))),
      }
    },
  }
}

/** Returns the key of the limit with this name; an empty string if no quota has it. */
export function keyOf(quotas: Exchange['quotas'], name: string): string {
  for (const quota of quotas) if (quota.name === name) return quota.key
  return ''
}

/** Returns the latest allowance of a limit; adds one if there is none. */
function latestOf(limits: LatestAllowance[], name: string): LatestAllowance {
  for (const latest of limits) if (latest.name === name) return latest
  const [resetAt, decidedAt] = [-Infinity, -Infinity]
  const counts = { limit: 0, windowMs: 0, remaining: 0, resetAt, decidedAt }
  const added: LatestAllowance = { name, ...counts, shadow: false, key: '', overs: undefined }
  limits.push(added)
  return added
}

function recordDecision(
  entry: Entry,
  { decision, quotas, endedAt, decidedAt = endedAt }: Exchange,
  second: number,
): void {
  const { admitted, allowances, refusedBy } = decision!
  for (const allowance of allowances) {
    const key = keyOf(quotas, allowance.name)
    const latest = latestOf(entry.limits, allowance.name)
    // Calls may end in another order than they were decided.
    if (decidedAt >= latest.decidedAt) {
      latest.limit = allowance.limit
      latest.windowMs = allowance.windowMs
      latest.remaining = allowance.remaining
      latest.resetAt = allowance.resetAt
      latest.shadow = allowance.shadow
      latest.key = key
      latest.decidedAt = decidedAt
    }
    if (admitted ? !allowance.admitted : allowance === refusedBy)
      (latest.overs ??= createRing(CALLER_SECONDS)).add(second)
    const { refusal } = entry
    if (refusal !== undefined && refusal.decidedAt > decidedAt) continue
    if (allowance === refusedBy)
      entry.refusal = { allowance, key, decidedAt, endsAt: decidedAt + allowance.retryAfterMs }
    else if (admitted && refusal?.key === key) entry.refusal = undefined
  }
}
