import type { Exchange } from '../../gateway/exchange.ts'
import { keyOfLimit } from '../../observe/access-log.ts'
import type { CallCounts } from '../../observe/status.ts'
import { countsBy } from '../../policy/caller-keys.ts'
import type { CountedCaller, ShownCaller } from '../../policy/counted-caller.ts'
import { nameClient } from '../../policy/name-callers.ts'
import { CALLER_SECONDS, type CallerRow, createCallerTable, LatestDecision } from './caller-table.ts'
import { Ring, secondOf } from './ring.ts'

/** Seconds that all requests are counted. */
const TOTAL_SECONDS = 300

export type Activity = ReturnType<typeof createActivity>

/**
 * Counts requests, and what limits decided about the busiest callers. Instants are
 * `performance.now()`.
 */
export function createActivity() {
  const requests = new Ring(TOTAL_SECONDS)
  const refused = new Ring(TOTAL_SECONDS)
  const failed = new Ring(TOTAL_SECONDS)
  const table = createCallerTable()

  function countFor(caller: ShownCaller, exchange: Exchange): void {
    const { decision, endedAt, route } = exchange
    const isRefused = decision?.admitted === false
    const isOwn = isRefused && isRefusedAs(caller, exchange)
    const row = table.rowOf(caller, isOwn, endedAt)
    if (row === undefined) return
    const second = secondOf(endedAt)
    row.calls.add(second)
    row.plan = exchange.caller?.plan
    if (isRefused) row.refused.add(second)
    if (row.lead === 0) row.route = route!.match
    row.lead += row.route === route!.match ? 1 : -1
    if (decision !== undefined) recordDecision(row, exchange, second, isOwn)
  }

  return {
    rows: table.rows,
    find: table.find,
    findPart: table.findPart,
    /** Returns all requests, also of callers that are not tracked. */
    calls(at = performance.now()): CallCounts {
      const second = secondOf(at)
      return {
        requests: requests.before(second),
        refused: refused.before(second),
        failed: failed.before(second),
      }
    },
    /** Counts a finished request, also for each caller that its limits count; without any, for its client. */
    count(exchange: Exchange, status: number): void {
      const { callers, caller, decision, endedAt } = exchange
      const second = secondOf(endedAt)
      requests.add(second)
      if (decision?.admitted === false) refused.add(second)
      else if (status >= 500) failed.add(second)
      for (const counted of callers) countFor(counted, exchange)
      if (callers.length === 0 && caller !== undefined)
        for (const client of nameClient(caller, exchange)) countFor(client, exchange)
    },
    /** Drops the allowances and the refusals of a caller whose limits have changed or were reset. */
    forget(caller: CountedCaller): void {
      for (const row of table.rows()) if (row.isAmbiguous || hasParts(row.parts, caller)) forgetDecisions(row)
    },
    /** Drops the allowances and the refusals of all callers. */
    forgetAll(): void {
      for (const row of table.rows()) forgetDecisions(row)
    },
  }
}

function forgetDecisions({ limits, refusal }: CallerRow): void {
  limits.clear()
  refusal.retryAfterMs = 0
}

/** True if a caller has all parts of `wanted`. */
const hasParts = (caller: CountedCaller, wanted: CountedCaller): boolean =>
  wanted.every(({ word, value }) => caller.some((own) => own.word === word && own.value === value))

/** True if the limit that refused a call counts by a caller: the caller is refused, and not only this call. */
const isRefusedAs = ({ parts }: ShownCaller, { decision, route }: Exchange): boolean =>
  route!.limits.some((limit) => limit.name === decision!.refusedBy?.name && countsBy(limit, parts))

function recordDecision(row: CallerRow, exchange: Exchange, second: number, isOwn: boolean): void {
  const { decision, quotas, endedAt, decidedAt = endedAt } = exchange
  const { admitted, allowances, refusedBy } = decision!
  for (const allowance of allowances) {
    const key = keyOfLimit(quotas, allowance.name)
    let latest = row.limits.get(allowance.name)
    if (latest === undefined) {
      latest = new LatestDecision()
      row.limits.set(allowance.name, latest)
    }
    // Calls may end in another order than they were decided.
    if (decidedAt >= latest.decidedAt) latest.record(allowance, key, decidedAt)
    if (admitted ? !allowance.admitted : allowance === refusedBy)
      (latest.overs ??= new Ring(CALLER_SECONDS)).add(second)
    const { refusal } = row
    if (refusal.decidedAt > decidedAt) continue
    if (isOwn && allowance === refusedBy) refusal.record(allowance, key, decidedAt)
    else if (admitted && refusal.key === key) refusal.retryAfterMs = 0
  }
}
