/** Something that many want: so much of it there is in all, and so much for each. */
export interface Shares {
  /** Is there one more for this holder? */
  free(holder: string): boolean
  take(holder: string): void
  giveBack(holder: string): void
}

/** Counts what each holder has; whoever has nothing costs nothing. */
export function createShares(all: number, each: number): Shares {
  const held = new Map<string, number>()
  let taken = 0
  return {
    free: (holder) => taken < all && (held.get(holder) ?? 0) < each,
    take(holder) {
      taken++
      held.set(holder, (held.get(holder) ?? 0) + 1)
    },
    giveBack(holder) {
      taken--
      const left = held.get(holder)! - 1
      if (left === 0) held.delete(holder)
      else held.set(holder, left)
    },
  }
}
