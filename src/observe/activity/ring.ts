export type Ring = ReturnType<typeof createRing>

/** Creates counts of the last so many seconds, one for each; a second is any whole number that never goes back. */
export function createRing(seconds: number) {
  const counts = new Uint32Array(seconds + 1)
  let newest = 0

  function advance(second: number): void {
    if (second - newest >= counts.length) counts.fill(0)
    else for (let s = newest + 1; s <= second; s++) counts[s % counts.length] = 0
    newest = second
  }
  return {
    add(second: number): void {
      if (second > newest) advance(second)
      counts[second % counts.length]!++
    },
    clear: () => void counts.fill(0),
    /** Returns the counts of the whole seconds before this one, oldest first. */
    before(second: number): readonly number[] {
      if (second > newest) advance(second)
      return Array.from({ length: seconds }, (_, i) => counts[(second + 1 + i) % counts.length]!)
    },
  }
}
