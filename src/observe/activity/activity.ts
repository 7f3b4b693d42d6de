import type { Exchange } from '../../gateway/exchange.ts'
import { ipPart } from '../../limit/key.ts'
import { type ActivityValues, busiest, type CallerActivity, type CallerKind, MAX_CALLERS } from './values.ts'
import { createRing, type Ring } from './ring.ts'
import {
  keyOf,
  limitValues,
  nothingSeen,
  type Refusal,
  refusedForMs,
  refusedUntil,
  type Seen,
} from './seen.ts'

export type Activity = ReturnType<typeof createActivity>

const CALLER_SECONDS = 60
const TOTAL_SECONDS = 300
/** A caller that is refused now weighs so much more that it is replaced last. */
const REFUSED_WEIGHT = 1e12

interface Entry {
  kind: CallerKind
  name: string
  readonly index: number
  readonly calls: Ring
  readonly refused: Ring
  /** The second of its last call. */
  at: number
  /** One for each limit; there are few. */
  readonly limits: Seen[]
  refusal: Refusal | undefined
}

/**
 * Counts what the busiest callers do, with the Space-Saving sketch (Metwally et al., 2005): who is new takes the place, and the
 * weight, of who weighs least; who has not called for a minute weighs nothing. All weights are halved each minute. Whatever
 * callers send, it stays this small. `now` is in milliseconds, as `performance.now`.
 */
export function createActivity(now = () => performance.now()) {
  const entries: Entry[] = []
  /** Of calls, by the index of the entry. */
  const weights = new Float64Array(MAX_CALLERS)
  const byName = { client: new Map<string, Entry>(), address: new Map<string, Entry>() }
  const totals = {
    requests: createRing(TOTAL_SECONDS),
    refused: createRing(TOTAL_SECONDS),
    failed: createRing(TOTAL_SECONDS),
  }
  let halvedAt = Math.floor(now() / 1000)

  function halve(second: number): void {
    const part = 2 ** -Math.floor((second - halvedAt) / CALLER_SECONDS)
    for (let i = 0; i < MAX_CALLERS; i++) weights[i]! *= part
    halvedAt = second
  }

  function entryOf(kind: CallerKind, name: string, second: number, at: number): Entry {
    const known = byName[kind].get(name)
    if (known !== undefined) return known
    let entry: Entry
    if (entries.length < MAX_CALLERS) {
      const [calls, refused] = [createRing(CALLER_SECONDS), createRing(CALLER_SECONDS)]
      entry = {
        kind,
        name,
        index: entries.length,
        calls,
        refused,
        at: second,
        limits: [],
        refusal: undefined,
      }
      entries.push(entry)
    } else {
      entry = leastOf(second, at)
      byName[entry.kind].delete(entry.name)
      entry.kind = kind
      entry.name = name
      entry.calls.clear()
      entry.refused.clear()
      entry.limits.length = 0
      entry.refusal = undefined
    }
    byName[kind].set(name, entry)
    return entry
  }

  /** Returns the entry that weighs least, with the weight that its successor takes over. */
  function leastOf(second: number, at: number): Entry {
    let least = entries[0]!
    let leastWeight = Infinity
    for (const entry of entries) {
      const isRefused = entry.refusal !== undefined && refusedForMs(entry.refusal, at) > 0
      const isIdle = second - entry.at >= CALLER_SECONDS
      const weight = isRefused ? REFUSED_WEIGHT + weights[entry.index]! : isIdle ? 0 : weights[entry.index]!
      if (weight >= leastWeight) continue
      least = entry
      leastWeight = weight
    }
    weights[least.index] = leastWeight % REFUSED_WEIGHT
    return least
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
      let seen: Seen | undefined
      for (const one of entry.limits) if (one.name === name) seen = one
      if (seen === undefined) entry.limits.push((seen = nothingSeen(name)))
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
      if (second - halvedAt >= CALLER_SECONDS) halve(second)
      const entry =
        caller.client === undefined
          ? entryOf('address', ipPart(caller.ip), second, endedAt)
          : entryOf('client', caller.client, second, endedAt)
      weights[entry.index]!++
      entry.at = second
      entry.calls.add(second)
      if (isRefused) entry.refused.add(second)
      if (decision !== undefined) note(entry, exchange, second)
    },
    /** Drops what limits said to a client: they have changed, or were reset. */
    forget(client: string): void {
      const entry = byName.client.get(client)
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
        ...busiest(entries.map((entry) => valuesOf(entry, at))),
      }
    },
  }
}

/** Returns an address as people write it: the key of a limit has no colons. */
const shownNetwork = (network: string): string =>
  network.endsWith('/64') ? `${network.slice(0, -3).replaceAll('-', ':')}::/64` : network
