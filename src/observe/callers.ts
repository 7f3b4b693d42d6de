import type { Exchange } from '../gateway/exchange.ts'
import { ipPart } from '../policy/key.ts'
import type { Allowance } from '../limit/store.ts'

/** Maximum callers that are kept when the table is full; more than are shown. */
export const MAX_CALLERS = 256
/** Minimum time between two reductions of a full table, in milliseconds. */
const REDUCE_MS = 10_000
/** Seconds whose calls decide which callers are kept: no more, so that new callers are compared fairly. */
const RANKED_SECONDS = REDUCE_MS / 1000
/** Added to the rank of a caller that is refused now, so that it is kept before all others. */
const REFUSED_RANK = 1e9
/** Seconds that a caller's calls are counted. */
const CALLER_SECONDS = 60

type Ring = ReturnType<typeof createRing>

/** Creates a ring of counts, one for each of the last `seconds`. A second is an integer that never decreases. */
export function createRing(seconds: number) {
  const counts = new Uint32Array(seconds + 1)
  let newest = 0

  function advance(second: number): void {
    if (second - newest >= counts.length) counts.fill(0)
    else for (let s = newest + 1; s <= second; s++) counts[s % counts.length] = 0
    newest = Math.max(newest, second)
  }
  return {
    add(second: number): void {
      advance(second)
      counts[second % counts.length]!++
    },
    /** Returns the counts of the complete seconds before `second`, oldest first. */
    before(second: number): readonly number[] {
      advance(second)
      return Array.from({ length: seconds }, (_, i) => counts[(second + 1 + i) % counts.length]!)
    },
  }
}

/** The latest decision of a limit about a caller. Written again with each decision: a new object for each would survive its call. */
class LatestDecision {
  name = ''
  key = ''
  limit = 0
  remaining = 0
  windowMs = 0
  resetAt = 0
  retryAfterMs = 0
  shadow = false
  /** `performance.now()` milliseconds. */
  decidedAt = Number.NEGATIVE_INFINITY

  record(
    { name, limit, remaining, windowMs, resetAt, retryAfterMs, shadow }: Allowance,
    key: string,
    decidedAt: number,
  ) {
    this.name = name
    // Keeps the string of an earlier call.
    if (this.key !== key) this.key = key
    this.limit = limit
    this.remaining = remaining
    this.windowMs = windowMs
    this.resetAt = resetAt
    this.retryAfterMs = retryAfterMs
    this.shadow = shadow
    this.decidedAt = decidedAt
  }
}

/** The latest decision of one limit of a caller. */
export class LatestAllowance extends LatestDecision {
  /** Counts the calls that the limit refused or, as a shadow limit, would have refused; created at the first. */
  overs: Ring | undefined = undefined
}

/** A caller without a client is identified by its IPv4 address, or the /64 of its IPv6 address. */
type CallerKind = 'client' | 'address'

export type Caller = ReturnType<typeof createCaller>

const createCaller = (kind: CallerKind, name: string) => ({
  kind,
  name,
  calls: createRing(CALLER_SECONDS),
  refused: createRing(CALLER_SECONDS),
  limits: new Map<string, LatestAllowance>(),
  /** The latest refusal; without a wait if there is none, or a call was admitted since. */
  refusal: new LatestDecision(),
})

/** Creates the table of the busiest callers. A full table is reduced to those refused now and the busiest others: every ten seconds, or when a further caller is refused. */
export function createCallers() {
  const tables = { address: new Map<string, Caller>(), client: new Map<string, Caller>() }
  const callers = (): Caller[] => [...tables.address.values(), ...tables.client.values()]
  let reducedAt = -Infinity

  function reduce(at: number): void {
    const rank = (caller: Caller): number =>
      sum(caller.calls.before(secondOf(at)).slice(-RANKED_SECONDS)) +
      (refusedForMs(caller, at) > 0 ? REFUSED_RANK : 0)
    const ranked = callers().map((caller) => ({ caller, rank: rank(caller) }))
    ranked.sort((a, b) => b.rank - a.rank)
    for (const { caller } of ranked.slice(MAX_CALLERS)) tables[caller.kind].delete(caller.name)
    reducedAt = at
  }

  /** Returns a caller; undefined if it is not tracked. */
  function callerOf(kind: CallerKind, name: string, isRefused: boolean, at: number): Caller | undefined {
    const known = tables[kind].get(name)
    if (known !== undefined) return known
    if (tables.client.size + tables.address.size >= 2 * MAX_CALLERS) {
      if (!isRefused && at - reducedAt < REDUCE_MS) return undefined
      reduce(at)
    }
    const caller = createCaller(kind, name)
    tables[kind].set(name, caller)
    return caller
  }

  return {
    callers,
    /** Counts a finished request: for its client or, if it is limited without a client, for its address. */
    count(exchange: Exchange): void {
      const { caller, quotas, decision, endedAt } = exchange
      if (caller === undefined || (caller.client === undefined && quotas.length === 0)) return
      const { client, ip } = caller
      const isRefused = decision?.admitted === false
      const kind = client === undefined ? 'address' : 'client'
      const counted = callerOf(kind, client ?? ipPart(ip), isRefused, endedAt)
      if (counted === undefined) return
      const second = secondOf(endedAt)
      counted.calls.add(second)
      if (isRefused) counted.refused.add(second)
      if (decision !== undefined) recordDecision(counted, exchange, second)
    },
    /** Drops the allowances and the refusal of a client whose limits have changed or were reset. */
    forget(client: string): void {
      const caller = tables.client.get(client)
      if (caller === undefined) return
      caller.limits.clear()
      caller.refusal.retryAfterMs = 0
    },
  }
}

function recordDecision(
  caller: Caller,
  { decision, quotas, endedAt, decidedAt = endedAt }: Exchange,
  second: number,
): void {
  const { admitted, allowances, refusedBy } = decision!
  for (const allowance of allowances) {
    const key = keyOf(quotas, allowance.name)
    let latest = caller.limits.get(allowance.name)
    if (latest === undefined) {
      latest = new LatestAllowance()
      caller.limits.set(allowance.name, latest)
    }
    // Calls may end in another order than they were decided.
    if (decidedAt >= latest.decidedAt) latest.record(allowance, key, decidedAt)
    if (admitted ? !allowance.admitted : allowance === refusedBy)
      (latest.overs ??= createRing(CALLER_SECONDS)).add(second)
    const { refusal } = caller
    if (refusal.decidedAt > decidedAt) continue
    if (allowance === refusedBy) refusal.record(allowance, key, decidedAt)
    else if (admitted && refusal.key === key) refusal.retryAfterMs = 0
  }
}

/** Returns the key of the limit with this name; an empty string if no quota has it. */
export function keyOf(quotas: Exchange['quotas'], name: string): string {
  for (const quota of quotas) if (quota.name === name) return quota.key
  return ''
}

/** Returns the milliseconds until the refusal of a caller ends; 0 if it is not refused now. */
export const refusedForMs = ({ refusal }: Caller, at: number): number =>
  Math.max(0, refusal.decidedAt + refusal.retryAfterMs - at)

export const secondOf = (at: number): number => Math.floor(at / 1000)
export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
