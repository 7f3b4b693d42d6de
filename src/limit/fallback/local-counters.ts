import { LRUCache } from 'lru-cache'
import { isProof, type Quota } from '../limit.ts'
import { MemoryStore, sweeper } from '../memory/store.ts'
import type { Charge } from '../store.ts'

/** Maximum keys whose last answer of the store is kept. */
const MAX_ANSWERS = 20_000
/** Maximum keys whose calls are written back after an outage. */
const MAX_RESTORED = 10_000

/**
 * Creates the counters that this process uses while the store is unavailable. Each gateway may admit an equal fraction of what
 * the store last reported as remaining. The calls are kept, to be written back.
 */
export function createLocalCounters() {
  const store = new MemoryStore()
  /** The store's last answer for a key, at an instant of `performance.now()`. */
  const answers = new LRUCache<string, { remaining: number; at: number }>({ max: MAX_ANSWERS })
  /** The keys that are counted here, each with `seeded` calls that the store had counted before. */
  const counted = new Map<
    string,
    { readonly quota: Quota; readonly seeded: number; readonly seededAt: number }
  >()
  const sweep = sweeper(counted, ({ quota: { key } }) => (store.has(key) ? Infinity : 0))

  /** Keeps the store's answer, whose allowances are in the order of the quotas. */
  function recordAnswer(quotas: readonly Quota[], { allowances }: Charge): void {
    const at = performance.now()
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      if (isProof(quota)) continue
      let answer = answers.get(quota.key)
      if (answer === undefined) answers.set(quota.key, (answer = { remaining: 0, at }))
      answer.remaining = allowances[i]!.remaining
      answer.at = at
    }
  }

  function drop(key: string): void {
    store.drop(key)
    counted.delete(key)
  }

  /** Returns this gateway's fraction of a quota. A key that is new here starts with what the store had counted. */
  function seed(quota: Quota, gateways: number): Quota {
    const { key, windowMs } = quota
    const own = { ...quota, limit: perGateway(quota.limit, gateways) }
    if (counted.has(key) && store.has(key)) return own
    const now = performance.now()
    const answer = answers.peek(key)
    const isCurrent = answer !== undefined && now - answer.at < windowMs
    const { remaining, at } = isCurrent ? answer : { remaining: quota.limit, at: now }
    const seeded = Math.max(0, own.limit - perGateway(remaining, gateways))
    if (seeded > 0) store.add(own, seeded, now - at)
    counted.set(key, { quota, seeded, seededAt: at })
    return own
  }

  return {
    recordAnswer,
    /** Charges this gateway's fraction of each quota, at least one call; all of them or none. */
    charge(quotas: readonly Quota[], gateways: number): Charge {
      sweep(2 * quotas.length, 0)
      return { ...store.charge(quotas.map((quota) => seed(quota, gateways))), mode: 'local' }
    },
    peek: (quotas: readonly Quota[], gateways: number) =>
      store.peek(quotas.map((quota) => seed(quota, gateways))),
    /** Returns the calls counted here under the wanted keys, the latest keys first, as quotas that add them to the store. */
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
    /** Drops the calls of a key that were written back, and keeps the answer. */
    restored(quota: Quota, charge: Charge): void {
      recordAnswer([quota], charge)
      drop(quota.key)
    },
    reset(matches: (key: string) => boolean): void {
      for (const key of [...answers.keys()]) if (matches(key)) answers.delete(key)
      for (const key of counted.keys()) if (matches(key)) drop(key)
    },
    close: () => store.close(),
  }
}

/** Returns one gateway's fraction of some calls, at least one of them. */
const perGateway = (calls: number, gateways: number): number =>
  calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
