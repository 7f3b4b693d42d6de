/** An item of an `UnorderedList`. `index` is written by the list; -1 while the item is in none. */
export interface ListItem {
  index: number
}

/**
 * An unordered collection for items that come and go with each request; an item is in at most one.
 * A Set grows and shrinks by new tables, and each old table refers to the next: a promoted table
 * keeps all later ones, and their items, until a full garbage collection. Its time: +0.1 us a
 * request; `npm run bench:micro -- list`.
 */
export class UnorderedList<Item extends ListItem> {
  readonly #items: Item[] = []

  get size(): number {
    return this.#items.length
  }

  add(item: Item): void {
    item.index = this.#items.push(item) - 1
  }

  delete(item: Item): void {
    if (item.index === -1) return
    const last = this.#items.pop()!
    if (last !== item) {
      this.#items[item.index] = last
      last.index = item.index
    }
    item.index = -1
  }

  /** Calls `act` with each item; possibly twice with the same item, if `act` deletes another. */
  forEach(act: (item: Item) => void): void {
    const items = this.#items
    for (let i = items.length - 1; i >= 0; i--) if (i < items.length) act(items[i]!)
  }
}
