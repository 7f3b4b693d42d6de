import { LRUCache } from 'lru-cache'
import { isProof, type Quota } from '../limit.ts'
import { MemoryStore, sweeper } from '../memory/store.ts'
import type { Charge } from '../store.ts'

/** Keys whose last answer of the store is known. */
const MAX_KNOWN = 20_000
/** Keys whose calls are written back after an outage. */
const MAX_RESTORED = 10_000

/** What the store last answered for a key, at an instant of `performance.now()`. */
interface LastAnswer {
  remaining: number
  knownAt: number
}

/** A key that was counted here, and how many of its calls the store had counted before. */
interface Counted {
  readonly quota: Quota
  readonly seeded: number
  readonly seededAt: number
}

/**
 * Counts in this process while the store is out of reach. Each gateway takes its part of what the store last reported as left,
 * and keeps the calls of each key, to be written back.
 */
export function createLocalCounters() {
  const store = new MemoryStore()
  const lastAnswers = new LRUCache<string, LastAnswer>({ max: MAX_KNOWN })
  const counted = new Map<string, Counted>()
  const sweep = sweeper(counted, ({ quota: { key } }) => (store.has(key) ? Infinity : 0))

  /** Stores the store's answer; its allowances are in the order of the quotas. */
  function note(quotas: readonly Quota[], { allowances }: Charge): void {
    const knownAt = performance.now()
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      if (isProof(quota)) continue
      const { remaining } = allowances[i]!
      const known = lastAnswers.get(quota.key)
      if (known === undefined) lastAnswers.set(quota.key, { remaining, knownAt })
      else {
        known.remaining = remaining
        known.knownAt = knownAt
      }
    }
  }

  function drop(key: string): void {
    store.drop(key)
    counted.delete(key)
  }

  /** Returns this gateway's part of a quota. A key that is new here starts with what the store had counted. */
  function seed(quota: Quota, gateways: number): Quota {
    const { key, windowMs } = quota
    const part = { ...quota, limit: perGateway(quota.limit, gateways) }
    if (counted.has(key) && store.has(key)) return part
    const now = performance.now()
    const known = lastAnswers.peek(key)
    const isCurrent = known !== undefined && now - known.knownAt < windowMs
    const seeded = isCurrent ? Math.max(0, part.limit - perGateway(known.remaining, gateways)) : 0
    const seededAt = isCurrent ? known.knownAt : now
    if (seeded > 0) store.add(part, seeded, now - seededAt)
    counted.set(key, { quota, seeded, seededAt })
    return part
  }

  return {
    note,
    /** Charges all quotas or none of this gateway's part of each: one of `gateways`, at least one call. */
    charge(quotas: readonly Quota[], gateways: number): Charge {
      sweep(2 * quotas.length, 0)
      return { ...store.charge(quotas.map((quota) => seed(quota, gateways))), mode: 'local' }
    },
    peek: (quotas: readonly Quota[], gateways: number) =>
      store.peek(quotas.map((quota) => seed(quota, gateways))),
    /** Returns the calls counted here under the wanted keys, as quotas that add them to the store; the latest keys first. */
    counted(isWanted: (key: string) => boolean): readonly Quota[] {
      const found: Quota[] = []
      for (const [key, { quota, seeded, seededAt }] of [...counted].toReversed()) {
        if (!isWanted(key)) continue
        const stillSeeded = performance.now() - seededAt < quota.windowMs ? seeded : 0
        const calls = store.used(quota) - stillSeeded
        if (calls > 0 && found.length < MAX_RESTORED) found.push({ ...quota, calls })
        else drop(key)
      }
      return found
    },
    /** Drops the calls of a key that were written back, and stores the answer. */
    restored(quota: Quota, charge: Charge): void {
      note([quota], charge)
      drop(quota.key)
    },
    reset(matches: (key: string) => boolean): void {
      for (const key of [...lastAnswers.keys()]) if (matches(key)) lastAnswers.delete(key)
      for (const key of counted.keys()) if (matches(key)) drop(key)
    },
    close: () => store.close(),
  }
}

/** Returns one gateway's part of some calls, at least one of them. */
function perGateway(calls: number, gateways: number): number {
  return calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
}
