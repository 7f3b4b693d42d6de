import type { Quota } from '../quota.ts'
import { KeyState } from './key-state.ts'

/** Maximum keys, and proofs, whose last answer of the store is kept: at least half of them. */
const MAX_ANSWERS = 20_000
/** Maximum keys, and proofs, that `next` yields. */
const MAX_VISITED = 5000

/** Creates the memory of keys. Each call has another proof: these are kept apart, so that they evict no limits. */
export function createKeys() {
  const [limits, proofs] = [createKind(), createKind()]
  const kindOf = (quota: Quota | undefined) => (quota?.isProof ? proofs : limits)

  return {
    /** Returns what is known of the key of a quota, or of its access. */
    know: (quota: Quota, key: string): KeyState => kindOf(quota).know(key),
    /** Returns a key with own calls. */
    find: (key: string): KeyState | undefined => limits.kept.get(key) ?? proofs.kept.get(key),
    /** Keeps a key, which has own calls, until it is released. */
    keep: (state: KeyState): void => void kindOf(state.quota).kept.set(state.key, state),
    release(state: KeyState): void {
      const { kept, remember } = kindOf(state.quota)
      // After a reset, another may be kept.
      if (kept.get(state.key) === state && kept.delete(state.key)) remember(state)
    },
    /** Records that the store has a merge of own calls, and with it those that began an access. */
    onMerged(state: KeyState, quota: Quota, number: number): void {
      for (const { atUs, access } of state.onMerged(number))
        if (access !== undefined) kindOf(quota).know(access.key).stored.recordOne(atUs)
    },
    hasKept: (): boolean => limits.kept.size > 0 || proofs.kept.size > 0,
    /** Yields some of the keys that are kept, in turn, limits before proofs. */
    *next(): Generator<KeyState> {
      yield* limits.next()
      yield* proofs.next()
    },
    /** Returns the keys of limits that match. */
    matching: limits.matching,
    reset(matches: (key: string) => boolean): void {
      for (const kind of [limits, proofs]) kind.reset(matches)
    },
  }
}

function createKind() {
  /** The keys with own calls, which must not be evicted. */
  const kept = new Map<string, KeyState>()
  /**
   * The keys that the store was asked for last, in two generations: the older is evicted at once. A
   * list by use: +1.2 us a call (`npm run bench:profile`).
   */
  let [young, old] = [new Map<string, KeyState>(), new Map<string, KeyState>()]
  let rest = kept.values()

  function remember(state: KeyState): void {
    if (young.size >= MAX_ANSWERS / 2) [young, old] = [new Map(), young]
    young.set(state.key, state)
  }

  return {
    kept,
    remember,
    know(key: string): KeyState {
      const known = (kept.size > 0 && kept.get(key)) || young.get(key)
      if (known) return known
      const state = old.get(key) ?? new KeyState(key)
      remember(state)
      return state
    },
    *next(): Generator<KeyState> {
      // One step more, for the end of the map, after which it begins again.
      for (let left = Math.min(MAX_VISITED, kept.size); left >= 0; left--) {
        const { value } = rest.next()
        if (value === undefined) rest = kept.values()
        else yield value
      }
    },
    matching(matches: (key: string) => boolean): readonly string[] {
      const keys = new Set([...kept.keys(), ...young.keys(), ...old.keys()])
      return [...keys].filter(matches)
    },
    reset(matches: (key: string) => boolean): void {
      for (const map of [young, old, kept])
        for (const [key, state] of map) {
          if (!matches(key)) continue
          // A merge may be under way.
          state.reset()
          map.delete(key)
        }
    },
  }
}
