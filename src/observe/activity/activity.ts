import type { Exchange } from '../../gateway/exchange.ts'
import { type ActivityValues, busiest, type ClientActivity } from './values.ts'
import { createRing, type Ring } from './ring.ts'
import { keyOf, limitValues, nothingSeen, type Refusal, refusedUntil, type Seen } from './seen.ts'

export type Activity = ReturnType<typeof createActivity>

/** More than `busiest` shows, so that one of the busiest is not the one that is replaced. */
const MAX_CLIENTS = 256
const CLIENT_SECONDS = 60
const TOTAL_SECONDS = 300
/** Once there are so many, one call in so many of other clients makes its client replace one: the search costs more than the rest. */
const CALLS_PER_REPLACEMENT = 16
/** A call weighs half after so many seconds. */
const HALF_LIFE_SECONDS = 60
/** The weight of a call at which all are scaled down: far from what a number can hold. */
const MAX_GAIN = 2 ** 500

interface Entry {
  client: string
  readonly index: number
  readonly calls: Ring
  readonly refused: Ring
  /** One for each limit; there are few. */
  readonly limits: Seen[]
  refusal: Refusal | undefined
}

/**
 * Counts what the busiest clients do, with the Space-Saving sketch (Metwally et al., 2005): who is new takes the place, and the
 * weight, of who weighs least. Weights decay, so that a client that stopped leaves. Whatever callers send, it stays this small.
 * `now` is in milliseconds, as `performance.now`.
 */
export function createActivity(now = () => performance.now()) {
  const entries: Entry[] = []
  /** By the index of the entry. */
  const weights = new Float64Array(MAX_CLIENTS)
  const byClient = new Map<string, Entry>()
  const totals = {
    requests: createRing(TOTAL_SECONDS),
    refused: createRing(TOTAL_SECONDS),
    failed: createRing(TOTAL_SECONDS),
  }
  /** Calls weigh more as time passes, which is the same as a decay of all weights. */
  let gain = 1
  let gainSecond = Math.floor(now() / 1000)

  function advance(second: number): void {
    gain *= 2 ** ((second - gainSecond) / HALF_LIFE_SECONDS)
    gainSecond = second
    if (gain < MAX_GAIN) return
    for (let i = 0; i < MAX_CLIENTS; i++) weights[i]! /= gain
    gain = 1
  }

  let callsOfOthers = 0

  function entryOf(client: string): Entry | undefined {
    const known = byClient.get(client)
    if (known !== undefined) return known
    let entry: Entry
    if (entries.length < MAX_CLIENTS) {
      const [calls, refused] = [createRing(CLIENT_SECONDS), createRing(CLIENT_SECONDS)]
      entry = { client, index: entries.length, calls, refused, limits: [], refusal: undefined }
      entries.push(entry)
    } else if (++callsOfOthers % CALLS_PER_REPLACEMENT !== 0) return undefined
    else {
      let least = 0
      for (let i = 1; i < MAX_CLIENTS; i++) if (weights[i]! < weights[least]!) least = i
      entry = entries[least]!
      byClient.delete(entry.client)
      entry.client = client
      entry.calls.clear()
      entry.refused.clear()
      entry.limits.length = 0
      entry.refusal = undefined
    }
    byClient.set(client, entry)
    return entry
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
        (seen.overs ??= createRing(CLIENT_SECONDS)).add(second)
      const { refusal } = entry
      if (refusal !== undefined && refusal.at > decidedAt) continue
      if (allowance === refusedBy) entry.refusal = { allowance, key, at: decidedAt }
      else if (admitted && refusal?.key === key) entry.refusal = undefined
    }
  }

  function valuesOf(entry: Entry, at: number): ClientActivity {
    const { client, calls, refused, limits, refusal } = entry
    const second = Math.floor(at / 1000)
    return {
      client,
      calls: calls.before(second),
      refused: refused.before(second),
      limits: limits.map((seen) => limitValues(client, seen, at, second)),
      refusedNow: refusal === undefined ? null : refusedUntil(refusal, at),
    }
  }

  return {
    /** Counts a request that is over. */
    count(exchange: Exchange, status: number): void {
      const { caller, decision, endedAt } = exchange
      const second = Math.floor(endedAt / 1000)
      const isRefused = decision !== undefined && !decision.admitted
      totals.requests.add(second)
      if (isRefused) totals.refused.add(second)
      if (status >= 500) totals.failed.add(second)
      if (caller?.client === undefined) return
      if (second > gainSecond) advance(second)
      const entry = entryOf(caller.client)
      if (entry === undefined) return
      weights[entry.index]! += gain
      entry.calls.add(second)
      if (isRefused) entry.refused.add(second)
      if (decision !== undefined) note(entry, exchange, second)
    },
    /** Drops what limits said to a client, or to all: they have changed. */
    forget(client?: string): void {
      for (const entry of entries) {
        if (client !== undefined && entry.client !== client) continue
        entry.limits.length = 0
        entry.refusal = undefined
      }
    },
    values(): ActivityValues {
      const at = now()
      const second = Math.floor(at / 1000)
      const clients = entries.map((entry) => valuesOf(entry, at))
      return {
        requests: totals.requests.before(second),
        refused: totals.refused.before(second),
        failed: totals.failed.before(second),
        clients: busiest(clients),
      }
    },
  }
}
