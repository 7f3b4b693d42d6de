import { createRing, type Ring } from './ring.ts'
import { type Refusal, refusedForMs, type LatestAllowance } from './latest-allowance.ts'
import { type CallerKind, MAX_CALLERS } from './values.ts'

/** Seconds that an entry counts; who has not called for so long is forgotten. */
export const CALLER_SECONDS = 60
/**
 * Once all entries are taken, one call in so many of other callers replaces the least of them, unless the caller is refused or
 * an entry is free: to replace one at each call took 4 % of the processor time, with 1000 clients (`npm run bench:gate`).
 */
const CALLS_PER_REPLACEMENT = 16
/** A caller that is refused now weighs so much more that it is replaced last. */
const REFUSED_WEIGHT = 1e12

export interface Entry {
  kind: CallerKind
  name: string
  readonly index: number
  readonly calls: Ring
  readonly refused: Ring
  /** The second of its last call. */
  at: number
  /** One for each limit; there are few. */
  readonly limits: LatestAllowance[]
  refusal: Refusal | undefined
}

/**
 * Creates the Space-Saving sketch (Metwally et al., 2005) of the busiest callers: who is new takes the place, and the weight, of
 * who weighs least; who has not called for a minute weighs nothing. All weights are halved each minute, from `startSecond` on.
 */
export function createSketch(startSecond: number) {
  const entries: Entry[] = []
  /** Of calls, by the index of the entry. */
  const weights = new Float64Array(MAX_CALLERS)
  const byName = { client: new Map<string, Entry>(), address: new Map<string, Entry>() }
  let callsOfOthers = 0
  let halvedAt = startSecond

  function halve(second: number): void {
    const part = 2 ** -Math.floor((second - halvedAt) / CALLER_SECONDS)
    for (let i = 0; i < MAX_CALLERS; i++) weights[i]! *= part
    halvedAt = second
  }

  function entryOf(
    kind: CallerKind,
    name: string,
    isRefused: boolean,
    second: number,
    at: number,
  ): Entry | undefined {
    const known = byName[kind].get(name)
    if (known !== undefined) return known
    let entry: Entry | undefined
    if (entries.length < MAX_CALLERS) {
      const [calls, refused] = [createRing(CALLER_SECONDS), createRing(CALLER_SECONDS)]
      const index = entries.length
      entry = { kind, name, index, calls, refused, at: second, limits: [], refusal: undefined }
      entries.push(entry)
    } else {
      entry = entryFor(isRefused, second, at)
      if (entry === undefined) return undefined
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

  /** Returns the entry that another caller takes over; undefined if this call does not replace any. */
  function entryFor(isRefused: boolean, second: number, at: number): Entry | undefined {
    const next = entries[++callsOfOthers % MAX_CALLERS]!
    if (second - next.at >= CALLER_SECONDS && !isRefusedNow(next, at)) {
      weights[next.index] = 0
      return next
    }
    return isRefused || callsOfOthers % CALLS_PER_REPLACEMENT === 0 ? leastOf(at) : undefined
  }

  /** Returns the entry that weighs least, with the weight that its successor takes over. */
  function leastOf(at: number): Entry {
    let least = entries[0]!
    let leastWeight = Infinity
    for (const entry of entries) {
      const weight = weights[entry.index]! + (isRefusedNow(entry, at) ? REFUSED_WEIGHT : 0)
      if (weight >= leastWeight) continue
      least = entry
      leastWeight = weight
    }
    weights[least.index] = leastWeight % REFUSED_WEIGHT
    return least
  }

  return {
    /** Those that have called, also those that are forgotten. */
    entries: entries as readonly Entry[],
    /** Counts a call; undefined if its caller has no entry. `at` in milliseconds, as `performance.now`. */
    count(kind: CallerKind, name: string, isRefused: boolean, second: number, at: number): Entry | undefined {
      if (second - halvedAt >= CALLER_SECONDS) halve(second)
      const entry = entryOf(kind, name, isRefused, second, at)
      if (entry === undefined) return undefined
      weights[entry.index]!++
      entry.at = second
      entry.calls.add(second)
      if (isRefused) entry.refused.add(second)
      return entry
    },
    ofClient: (client: string): Entry | undefined => byName.client.get(client),
  }
}

const isRefusedNow = ({ refusal }: Entry, at: number): boolean =>
  refusal !== undefined && refusedForMs(refusal, at) > 0
