/** Combines what several processes have counted. */

export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)

/** Adds up lists of equal length, index by index; some may be empty. */
export function addUp(lists: readonly (readonly number[])[]): readonly number[] {
  const sums: number[] = []
  for (const list of lists) for (let i = 0; i < list.length; i++) sums[i] = (sums[i] ?? 0) + list[i]!
  return sums
}

/** Adds up the calls of two items that are else the same. */
export function addCalls<Item extends { readonly calls: number }>(a: Item, b: Item): Item {
  return { ...a, calls: a.calls + b.calls }
}

type ItemOf<Lists, Name extends keyof Lists> = Lists[Name] extends readonly (infer Item)[] ? Item : never

/**
 * Merges the lists of this name: combines the items with the same values of `keys`, in the order of
 * the first item of each.
 */
export function mergeLists<Lists, Name extends keyof Lists, Item extends ItemOf<Lists, Name>>(
  all: readonly Lists[],
  name: Name,
  keys: readonly (keyof Item)[],
  combine: (a: Item, b: Item) => Item,
): Item[] {
  const merged = new Map<string, Item>()
  for (const item of all.flatMap((one) => one[name] as readonly Item[])) {
    const id = keys.map((key) => item[key]).join(' ')
    const other = merged.get(id)
    merged.set(id, other === undefined ? item : combine(other, item))
  }
  return [...merged.values()]
}
