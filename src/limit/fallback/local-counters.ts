import { isProof, type Quota } from '../limit.ts'
import { MemoryStore, sweeper } from '../memory/store.ts'
import type { Allowance, Charge } from '../store.ts'

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
  expiresAtMs: number
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
  readonly #sweep = sweeper(this.#counted, ({ expiresAtMs }) => expiresAtMs)

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
    this.#sweep(2 * quotas.length, performance.now())
    const parts = quotas.map((quota) => this.#seed(quota, gateways))
    return { ...this.#store.charge(parts), mode: 'local' }
  }

  peek(quotas: readonly Quota[], gateways: number): Promise<readonly Allowance[]> {
    return this.#store.peek(quotas.map((quota) => this.#seed(quota, gateways)))
  }

  /** The calls that were counted here, under the keys that are asked for: as quotas that add them to the store, the latest keys first. */
  counted(isAsked: (key: string) => boolean): readonly Quota[] {
    const found: Quota[] = []
    for (const [key, { quota, seeded, seededAtMs }] of [...this.#counted].toReversed()) {
      if (!isAsked(key)) continue
      const stillSeeded = performance.now() - seededAtMs < quota.windowMs ? seeded : 0
      const calls = this.#store.used(quota) - stillSeeded
      if (calls > 0 && found.length < MOST_RESTORED) found.push({ ...quota, calls })
      else this.#drop(key)
    }
    return found
  }

  /** Forgets the calls of a key that the store has taken over, and notes what that said. */
  restored(quota: Quota, charge: Charge): void {
    this.note([quota], charge)
    this.#drop(quota.key)
  }

  reset(matches: (key: string) => boolean): void {
    for (const known of [this.#known, this.#older]) {
      for (const key of known.keys()) if (matches(key)) known.delete(key)
    }
    for (const key of this.#counted.keys()) if (matches(key)) this.#drop(key)
  }

  #drop(key: string): void {
    this.#store.drop(key)
    this.#counted.delete(key)
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
    const nowMs = performance.now()
    const counted = this.#counted.get(key)
    if (counted !== undefined && this.#store.has(key)) {
      counted.expiresAtMs = nowMs + windowMs
      return part
    }
    const known = this.#knownOf(key)
    const agoMs = known === undefined ? windowMs : nowMs - known.atMs
    const seeded =
      known === undefined || agoMs >= windowMs
        ? 0
        : Math.max(0, part.limit - partOf(known.remaining, gateways))
    if (seeded > 0) this.#store.add(part, seeded, agoMs)
    this.#counted.set(key, { quota, seeded, seededAtMs: nowMs - agoMs, expiresAtMs: nowMs + windowMs })
    return part
  }
}

/** One gateway's part of some calls, at least one of them. */
function partOf(calls: number, gateways: number): number {
  return calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
}
