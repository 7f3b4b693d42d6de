import type { Quota } from '../quota.ts'
import type { Charge, RemoteStore } from '../store.ts'
import type { KeyState } from './key-state.ts'
import type { createKeys } from './keys.ts'

/** Maximum merges under way: Redis decides calls between them. A merge of 1000 calls takes it 2 ms. */
const MERGES_AT_ONCE = 4

interface HandOverOptions {
  readonly store: Pick<RemoteStore, 'merge'>
  readonly keys: ReturnType<typeof createKeys>
  readonly isUp: (quota: Quota) => boolean
  /** Records an answer of the store. */
  readonly answered: (quotas: readonly Quota[], charge: Charge) => unknown
  /** Forgets a key whose own calls are all in the store, or have left the window. */
  readonly release: (state: KeyState) => void
}

/** Creates the background work that hands the calls over to the store that this gateway admitted by itself. */
export function createHandOver({ store, keys, isUp, answered, release }: HandOverOptions) {
  let lastMerge = 0

  /** Hands the own calls of a key over, also those that come meanwhile. */
  async function handOver(state: KeyState): Promise<void> {
    for (;;) {
      const merge = state.send(++lastMerge)
      if (merge === undefined) break
      const charge = await store.merge(merge).catch(() => undefined)
      if (charge === undefined) {
        state.onNoAnswer()
        break
      }
      keys.onMerged(state, merge.quota, merge.number)
      answered([merge.quota], charge)
    }
    release(state)
  }

  let turn: Promise<unknown> | undefined

  return {
    /** Hands the own calls of all keys over: a turn of the background. */
    turn(): Promise<unknown> {
      const states = keys.next()
      async function handOverNext(): Promise<void> {
        for (const state of states)
          if (state.quota !== undefined && isUp(state.quota)) await handOver(state)
          else release(state)
      }
      if (turn !== undefined) return turn
      turn = Promise.all(Array.from({ length: MERGES_AT_ONCE }, handOverNext)).finally(
        () => (turn = undefined),
      )
      return turn
    },
  }
}
