import type { Exchange } from '../../gateway/exchange.ts'
import { ipPart } from '../../limit/key.ts'
import { createRing } from './ring.ts'
import { type ActivityValues, busiest, type CallerActivity } from './values.ts'
import { keyOf, limitValues, emptyLatest, refusedUntil, type LatestAllowance } from './latest-allowance.ts'
import { CALLER_SECONDS, createSketch, type Entry } from './sketch.ts'

export type Activity = ReturnType<typeof createActivity>

const TOTAL_SECONDS = 300
/** Counts what the busiest callers do. Whatever callers send, it stays small. `now` is in milliseconds, as `performance.now`. */
export function createActivity(now = () => performance.now()) {
  const sketch = createSketch(Math.floor(now() / 1000))
  const totals = {
    requests: createRing(TOTAL_SECONDS),
    refused: createRing(TOTAL_SECONDS),
    failed: createRing(TOTAL_SECONDS),
  }

  return {
    /** Counts a request that is over: for its client or, of one that is limited without a client, its address. */
    count(exchange: Exchange, status: number): void {
      const { caller, quotas, decision, endedAt } = exchange
      const second = Math.floor(endedAt / 1000)
      const isRefused = decision !== undefined && !decision.admitted
      totals.requests.add(second)
      if (isRefused) totals.refused.add(second)
      if (status >= 500) totals.failed.add(second)
      if (caller === undefined || (caller.client === undefined && quotas.length === 0)) return
      const { client, ip } = caller
      const entry =
        client === undefined
          ? sketch.count('address', ipPart(ip), isRefused, second, endedAt)
          : sketch.count('client', client, isRefused, second, endedAt)
      if (entry === undefined) return
      if (decision !== undefined) note(entry, exchange, second)
    },
    /** Drops what limits said to a client: they have changed, or were reset. */
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
        requests: totals.requests.before(second),
        refused: totals.refused.before(second),
        failed: totals.failed.before(second),
        ...busiest(sketch.entries.map((entry) => valuesOf(entry, at))),
      }
    },
  }
}

function note(
  entry: Entry,
  { decision, quotas, endedAt, decidedAt = endedAt }: Exchange,
  second: number,
): void {
  const { admitted, allowances, refusedBy } = decision!
  for (const allowance of allowances) {
    const { name, limit, windowMs, remaining, resetAt, shadow } = allowance
    const key = keyOf(quotas, name)
    let seen: LatestAllowance | undefined
    for (const one of entry.limits) if (one.name === name) seen = one
    if (seen === undefined) entry.limits.push((seen = emptyLatest(name)))
    if (decidedAt >= seen.at) {
      // Calls do not end in the order in which they were decided.
      seen.limit = limit
      seen.windowMs = windowMs
      seen.remaining = remaining
      seen.resetAt = resetAt
      seen.shadow = shadow
      seen.key = key
      seen.at = decidedAt
    }
    if (admitted ? !allowance.admitted : allowance === refusedBy)
      (seen.overs ??= createRing(CALLER_SECONDS)).add(second)
    const { refusal } = entry
    if (refusal !== undefined && refusal.at > decidedAt) continue
    if (allowance === refusedBy) entry.refusal = { allowance, key, at: decidedAt }
    else if (admitted && refusal?.key === key) entry.refusal = undefined
  }
}

function valuesOf(entry: Entry, at: number): CallerActivity {
  const { kind, name, calls, refused, limits, refusal } = entry
  const second = Math.floor(at / 1000)
  return {
    kind,
    client: kind === 'client' ? name : shownNetwork(name),
    calls: calls.before(second),
    refused: refused.before(second),
    limits: limits.map((seen) => limitValues(name, seen, at, second)),
    refusedNow: refusal === undefined ? null : refusedUntil(refusal, at),
  }
}

/** Returns an address as people write it: the key of a limit has no colons. */
const shownNetwork = (network: string): string =>
  network.endsWith('/64') ? `${network.slice(0, -3).replaceAll('-', ':')}::/64` : network
