import { LRUCache } from 'lru-cache'
import { atMost } from '../../runtime/at-most.ts'
import { type Clock, SYSTEM_CLOCK } from '../../runtime/clock.ts'

/** Time for which a mark is kept after its merge was answered, in addition to the timeout, in milliseconds. */
const LIFE_MS = 60_000
/** Pause in which answers are gathered: one message for many marks costs Redis less than a message for each. */
const GATHER_MS = 250
/** Maximum marks that are remembered; Redis removes others by their expiry. */
const MAX_REMEMBERED = 10_000

interface MarksOptions {
  readonly timeoutMs: number
  readonly clock?: Clock
  readonly expire: (mark: string, ms: number) => Promise<unknown>
  readonly remove: (mark: string) => Promise<unknown>
}

/**
 * Creates the expiry of the marks of merges. Redis keeps a mark for as long as its gateway may send
 * the merge again: a window. After the answer, it is needed only while an earlier copy of the
 * message may still be under way, which does nothing after its deadline.
 */
export function createMarks({ timeoutMs, clock = SYSTEM_CLOCK, expire, remove }: MarksOptions) {
  const lifeMs = LIFE_MS + timeoutMs
  let answered: string[] = []
  /** Marks of merges that were answered at their first message, so that no copy is under way. */
  const removable = new LRUCache<string, true>(atMost(MAX_REMEMBERED))
  /** Marks of merges without an answer so far. */
  const unanswered = new LRUCache<string, true>(atMost(MAX_REMEMBERED))

  function expireAll(): void {
    for (const mark of answered.splice(0)) expire(mark, lifeMs).catch(() => {})
  }

  return {
    /** Makes a merge, whose mark expires once it was answered. */
    async during<T>(mark: string, merge: () => Promise<T>): Promise<T> {
      try {
        const outcome = await merge()
        if (!unanswered.delete(mark)) removable.set(mark, true)
        if (answered.push(mark) === 1) clock.after(GATHER_MS, expireAll)
        return outcome
      } catch (error) {
        unanswered.set(mark, true)
        throw error
      }
    },
    /** Removes the marks, or has them expire: nothing is merged any more. */
    close(): void {
      answered = answered.filter((mark) => !removable.has(mark)).concat(...unanswered.keys())
      expireAll()
      for (const mark of removable.keys()) remove(mark).catch(() => {})
    },
  }
}
