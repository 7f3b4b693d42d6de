/** A bounded number of places, and a bounded queue for them. */
export interface Slots {
  /** Resolves with a place; rejects where too many wait, or when the signal says that waiting is over. */
  take(signal: AbortSignal): Promise<void>
  /** Gives a place back. */
  give(): void
}

/** Hands out `places` at a time, first come, first served; at most `maxWaiting` wait. */
export function createSlots(places: number, maxWaiting: number): Slots {
  const waiting = new Set<() => void>()
  let taken = 0
  return {
    async take(signal) {
      if (taken < places) {
        taken++
        return
      }
      if (waiting.size >= maxWaiting) throw new Error(`${maxWaiting} wait already`)
      await new Promise<void>((resolve, reject) => {
        const leave = (): void => {
          waiting.delete(enter)
          reject(signal.reason as Error)
        }
        const enter = (): void => {
          signal.removeEventListener('abort', leave)
          resolve()
        }
        waiting.add(enter)
        signal.addEventListener('abort', leave, { once: true })
      })
    },
    give() {
      const [next] = waiting
      if (next === undefined) {
        taken--
        return
      }
      // The place changes hands, so that nobody slips in between.
      waiting.delete(next)
      next()
    },
  }
}
