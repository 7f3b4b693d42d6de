/** Returns the first integer from `low` that is wanted, as all later ones are; `high` if none before it is. */
export function search(low: number, high: number, isWanted: (at: number) => boolean): number {
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (isWanted(middle)) high = middle
    else low = middle + 1
  }
  return low
}
