/** Combines what several processes have counted. */

export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)

/** Adds up lists of equal length, index by index; some may be empty. */
export function addUp(lists: readonly (readonly number[])[]): readonly number[] {
  const sums: number[] = []
  for (const list of lists) for (const [i, value] of list.entries()) sums[i] = (sums[i] ?? 0) + value
  return sums
}

/** Combines the items with the same key, in the order of the first item of each key. */
export function mergeBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  combine: (a: Item, b: Item) => Item,
): Item[] {
  const merged = new Map<string, Item>()
  for (const item of items) {
    const other = merged.get(keyOf(item))
    merged.set(keyOf(item), other === undefined ? item : combine(other, item))
  }
  return [...merged.values()]
}
