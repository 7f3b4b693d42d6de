import { isProof, type Quota } from './limit.ts'
import { MemoryStore } from './memory-store.ts'
import type { Allowance, Charge } from './store.ts'

/** Most keys of which is known what the store last said of them, twice: the older half goes first. */
const MOST_KNOWN = 10_000
/** Most keys whose calls are written back after an outage. */
const MOST_RESTORED = 10_000

/** What the store last said of a key, `atMs` by `performance.now()`. */
interface Known {
  remaining: number
  atMs: number
}

/** A key that was counted here, and how many of its calls the store had counted before. */
interface Counted {
  readonly quota: Quota
  readonly seeded: number
  readonly seededAtMs: number
}

/**
 * Counts in this process while the store is out of reach: each gateway its part of what the store last said was left of a
 * key, and what each key's calls were, to be written back.
 */
export class LocalCounters {
  readonly #store = new MemoryStore()
  #known = new Map<string, Known>()
  #older = new Map<string, Known>()
  readonly #counted = new Map<string, Counted>()

  /** Notes what the store said, of quotas in the same order. */
  note(quotas: readonly Quota[], { allowances }: Charge): void {
    for (const [i, quota] of quotas.entries()) {
      if (isProof(quota)) continue
      const { remaining } = allowances[i]!
      const known = this.#knownOf(quota.key)
      if (known !== undefined) {
        known.remaining = remaining
        known.atMs = performance.now()
        continue
      }
      if (this.#known.size >= MOST_KNOWN) {
        this.#older = this.#known
        this.#known = new Map()
      }
      this.#known.set(quota.key, { remaining, atMs: performance.now() })
    }
  }

  /** Charges all quotas or none, of this gateway's part of each: one of so many, at least one call. */
  charge(quotas: readonly Quota[], gateways: number): Charge {
    const parts = quotas.map((quota) => this.#seed(quota, gateways))
    return { ...this.#store.charge(parts), mode: 'local' }
  }

  peek(quotas: readonly Quota[], gateways: number): Promise<readonly Allowance[]> {
    return this.#store.peek(quotas.map((quota) => this.#seed(quota, gateways)))
  }

  /** Takes out the calls that were counted here, under the keys that are asked for: as quotas that add them to the store. */
  take(isAsked: (key: string) => boolean): readonly Quota[] {
    const taken: Quota[] = []
    for (const [key, { quota, seeded, seededAtMs }] of this.#counted) {
      if (!isAsked(key)) continue
      const stillSeeded = performance.now() - seededAtMs < quota.windowMs ? seeded : 0
      const calls = this.#store.used(quota) - stillSeeded
      this.#store.drop(key)
      this.#counted.delete(key)
      if (calls > 0) taken.push({ ...quota, calls })
    }
    return taken
  }

  reset(matches: (key: string) => boolean): void {
    for (const known of [this.#known, this.#older]) {
      for (const key of known.keys()) if (matches(key)) known.delete(key)
    }
    for (const key of this.#counted.keys()) {
      if (!matches(key)) continue
      this.#store.drop(key)
      this.#counted.delete(key)
    }
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  #knownOf(key: string): Known | undefined {
    return this.#known.get(key) ?? this.#older.get(key)
  }

  /** This gateway's part of a quota; under a key that is new here, what the store had counted goes first. */
  #seed(quota: Quota, gateways: number): Quota {
    const { key, limit, windowMs } = quota
    const part = { ...quota, limit: limit === 0 ? 0 : partOf(limit, gateways) }
    if (this.#store.has(key)) return part
    const known = this.#knownOf(key)
    const agoMs = known === undefined ? windowMs : performance.now() - known.atMs
    const seeded =
      known === undefined || agoMs >= windowMs ? 0 : part.limit - partOf(known.remaining, gateways)
    if (seeded > 0) this.#store.add(part, seeded, agoMs)
    if (this.#counted.size < MOST_RESTORED) {
      this.#counted.set(key, { quota, seeded: Math.max(0, seeded), seededAtMs: performance.now() - agoMs })
    }
    return part
  }
}

/** One gateway's part of some calls, at least one of them. */
function partOf(calls: number, gateways: number): number {
  return calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
}
