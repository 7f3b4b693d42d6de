import { LRUCache } from 'lru-cache'
import { isProof, type Quota } from '../limit.ts'
import type { Known } from './known.ts'

/** Maximum keys, and proofs, whose last answer of the store is kept. */
const MAX_ANSWERS = 20_000
/** Maximum keys, and proofs, that `next` yields. */
const MAX_VISITED = 5000

/** Creates the memory of keys. Each call has another proof: these are kept apart, so that they evict no limits. */
export function createKeys() {
  const [limits, proofs] = [createKind(), createKind()]
  const kindOf = (quota: Quota) => (isProof(quota) ? proofs : limits)

  return {
    /** Returns what is known of a key. It does not refer to the quota of each call, which would outlive the call. */
    know(quota: Quota): Known {
      const { key } = quota
      const { kept, asked } = kindOf(quota)
      let known = (kept.size > 0 && kept.get(key)) || asked.get(key)
      if (known === undefined) {
        // A quota that is kept makes V8 allocate all quotas and their strings in the old space: a full collection every 3 s.
        const nothingOwn = { own: undefined, spreadMs: 0, back: undefined, adding: undefined }
        known = { quota: { ...quota }, ...nothingOwn, used: 0, firstAt: 0, rest: 0, lastAt: 0 }
        asked.set(key, known)
      }
      return known
    },
    /** Keeps a key, which has own calls, until it is released. */
    keep: (known: Known): void => void kindOf(known.quota).kept.set(known.quota.key, known),
    release(known: Known): void {
      const { kept, asked } = kindOf(known.quota)
      // After a reset, another may be kept.
      if (kept.get(known.quota.key) !== known) return
      kept.delete(known.quota.key)
      asked.set(known.quota.key, known)
    },
    hasKept: (): boolean => limits.kept.size > 0 || proofs.kept.size > 0,
    /** Returns those of the keys that are kept, under these quotas. */
    kept: (quotas: readonly Quota[]): readonly Known[] =>
      quotas.flatMap((quota) => {
        const known = kindOf(quota).kept.get(quota.key)
        return known === undefined ? [] : Object.assign(known, { quota })
      }),
    /** Yields some of the keys that are kept, in turn, limits before proofs. */
    *next(): Generator<Known> {
      yield* limits.next()
      yield* proofs.next()
    },
    reset(matches: (key: string) => boolean): void {
      for (const map of [limits.asked, limits.kept, proofs.asked, proofs.kept])
        for (const key of map.keys()) if (matches(key)) map.delete(key)
    },
  }
}

function createKind() {
  /** The keys with own calls, which must not be evicted. */
  const kept = new Map<string, Known>()
  let rest = kept.values()
  return {
    kept,
    /** The keys that the store was asked for last. */
    asked: new LRUCache<string, Known>({ max: MAX_ANSWERS }),
    *next(): Generator<Known> {
      for (let i = Math.min(MAX_VISITED, kept.size); i > 0; i--) {
        const { value } = rest.next()
        if (value === undefined) rest = kept.values()
        else yield value
      }
    },
  }
}
