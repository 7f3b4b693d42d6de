import type { Allowance } from '../../limit/store.ts'

/** Maximum callers tracked: more than are shown, so that the busiest are not replaced. */
export const MAX_CALLERS = 256
/** Seconds that an entry counts. After this time without a call, its caller is forgotten. */
export const CALLER_SECONDS = 60
/**
 * When all entries are used, only every 16th call of an untracked caller may replace the entry with the least weight, unless the
 * caller is refused: finding it at each call took 4 % of the processor time, with 1000 clients (`npm run bench:gate`).
 */
const CALLS_PER_REPLACEMENT = 16
/** Additional weight of a caller that is refused now, so that it is replaced last. */
const REFUSED_WEIGHT = 1e12

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
    clear: () => void counts.fill(0),
    /** Returns the counts of the complete seconds before `second`, oldest first. */
    before(second: number): readonly number[] {
      advance(second)
      return Array.from({ length: seconds }, (_, i) => counts[(second + 1 + i) % counts.length]!)
    },
  }
}

type Writable<Fields> = { -readonly [Name in keyof Fields]: Fields[Name] }

/**
 * The latest allowance of one limit for one caller. Fields are overwritten in place: kept allowance objects would fill the old
 * generation and cause long GC pauses.
 */
export interface LatestAllowance extends Writable<
  Pick<Allowance, 'name' | 'limit' | 'windowMs' | 'remaining' | 'resetAt' | 'shadow'>
> {
  key: string
  decidedAt: number
  /** Counts the calls that the limit refused or, as a shadow limit, would have refused; created at the first. */
  overs: Ring | undefined
}

/** The latest refusal of a caller. */
export interface Refusal {
  readonly allowance: Allowance
  readonly key: string
  readonly decidedAt: number
  readonly endsAt: number
}

/** A caller without a client is identified by its IPv4 address, or the /64 of its IPv6 address. */
type CallerKind = 'client' | 'address'

export interface Entry {
  kind: CallerKind
  name: string
  weight: number
  readonly calls: Ring
  readonly refused: Ring
  /** The second of the latest call. */
  lastSecond: number
  readonly limits: LatestAllowance[]
  refusal: Refusal | undefined
}

/**
 * Creates the table of the busiest callers, in constant memory (Space-Saving, Metwally et al., 2005): a new caller replaces the
 * one with the least weight, and inherits it. Weights are halved each minute, and a caller without a call for a minute has none.
 * Instants are `performance.now()`.
 */
export function createSketch(startAt: number) {
  const entries: Entry[] = []
  const byName = { client: new Map<string, Entry>(), address: new Map<string, Entry>() }
  let untrackedCalls = 0
  let halvedAt = Math.floor(startAt / 1000)

  function halve(second: number): void {
    const factor = 2 ** -Math.floor((second - halvedAt) / CALLER_SECONDS)
    for (const entry of entries) entry.weight *= factor
    halvedAt = second
  }

  function addEntry(kind: CallerKind, name: string): Entry {
    const [calls, refused] = [createRing(CALLER_SECONDS), createRing(CALLER_SECONDS)]
    const state = { weight: 0, lastSecond: 0, limits: [], refusal: undefined }
    const entry: Entry = { kind, name, calls, refused, ...state }
    entries.push(entry)
    return entry
  }

  /** Returns the entry that another caller takes over, emptied; undefined if this call does not replace any. */
  function replaceEntry(kind: CallerKind, name: string, isRefused: boolean, at: number): Entry | undefined {
    let entry = entries[++untrackedCalls % MAX_CALLERS]!
    if (Math.floor(at / 1000) - entry.lastSecond >= CALLER_SECONDS && !isRefusedNow(entry, at))
      entry.weight = 0
    else if (isRefused || untrackedCalls % CALLS_PER_REPLACEMENT === 0) entry = leastOf(at)
    else return undefined
    byName[entry.kind].delete(entry.name)
    entry.kind = kind
    entry.name = name
    entry.calls.clear()
    entry.refused.clear()
    entry.limits.length = 0
    entry.refusal = undefined
    return entry
  }

  /** Returns the entry with the least weight, which the next caller inherits. */
  function leastOf(at: number): Entry {
    let least = entries[0]!
    let leastWeight = Infinity
    for (const entry of entries) {
      const weight = entry.weight + (isRefusedNow(entry, at) ? REFUSED_WEIGHT : 0)
      if (weight >= leastWeight) continue
      least = entry
      leastWeight = weight
    }
    least.weight = leastWeight % REFUSED_WEIGHT
    return least
  }

  return {
    /** All entries, also those of forgotten callers. */
    entries: entries as readonly Entry[],
    /** Counts a call. Returns the entry of its caller; undefined if the caller has none. */
    count(kind: CallerKind, name: string, isRefused: boolean, at: number): Entry | undefined {
      const second = Math.floor(at / 1000)
      if (second - halvedAt >= CALLER_SECONDS) halve(second)
      let entry = byName[kind].get(name)
      if (entry === undefined) {
        const isFull = entries.length === MAX_CALLERS
        entry = isFull ? replaceEntry(kind, name, isRefused, at) : addEntry(kind, name)
        if (entry === undefined) return undefined
        byName[kind].set(name, entry)
      }
      entry.weight++
      entry.lastSecond = second
      entry.calls.add(second)
      if (isRefused) entry.refused.add(second)
      return entry
    },
    ofClient: (client: string): Entry | undefined => byName.client.get(client),
  }
}

const isRefusedNow = ({ refusal }: Entry, at: number): boolean => refusal !== undefined && refusal.endsAt > at
