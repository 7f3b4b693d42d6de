import type { Clock } from '../../runtime/clock.ts'
import type { BatchedDecision } from './question.ts'

/** Decisions of one hash slot, which are sent together: at least one. */
export type Batch = readonly [BatchedDecision, ...BatchedDecision[]]

/** Maximum decisions of a batch. With larger ones, Redis and the gateway take turns being idle. */
const MAX_BATCH = 24

/** Returns a key of a decision, which all have its slot; a decision has at least one limit. */
export function slotKeyOf({ quotas }: BatchedDecision): string {
  const first = quotas[0]
  if (first === undefined) throw new Error('a decision has no limit')
  return first.key
}

/**
 * Collects the decisions of one iteration of the event loop by their hash slots, and sends those of
 * each slot at its end, or once they are as many as a batch may have.
 */
export function createBatches(slotOf: (key: string) => number, send: (batch: Batch) => void, clock: Clock) {
  let batches = new Map<number, [BatchedDecision, ...BatchedDecision[]]>()

  function sendAll(): void {
    const gathered = batches
    batches = new Map()
    for (const batch of gathered.values()) send(batch)
  }

  return {
    /** Adds a decision to the batch of its slot. The configuration ensures that its keys share one. */
    add(decision: BatchedDecision): void {
      const slot = slotOf(slotKeyOf(decision))
      const batch = batches.get(slot)
      if (batch === undefined) {
        if (batches.size === 0) clock.soon(sendAll)
        batches.set(slot, [decision])
        return
      }
      if (batch.push(decision) < MAX_BATCH) return
      batches.delete(slot)
      send(batch)
    },
  }
}
