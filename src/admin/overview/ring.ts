export type Ring = ReturnType<typeof createRing>

/** Creates a ring of counts, one for each of the last `seconds`. A second is an integer that never decreases. */
export function createRing(seconds: number) {
  const counts = new Uint32Array(seconds + 1)
  let newest = 0

  function advance(second: number): void {
    if (second - newest >= counts.length) counts.fill(0)
    else for (let s = newest + 1; s <= second; s++) counts[s % counts.length] = 0
    newest = Math.max(newest, second)
  }
  return {
    add(second: number): void {
      advance(second)
      counts[second % counts.length]!++
    },
    /** Returns the counts of the complete seconds before `second`, oldest first. */
    before(second: number): readonly number[] {
      advance(second)
      return Array.from({ length: seconds }, (_, i) => counts[(second + 1 + i) % counts.length]!)
    },
  }
}

/** Returns the second of an instant of `performance.now()`. */
export const secondOf = (at: number): number => Math.floor(at / 1000)
