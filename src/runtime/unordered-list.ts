/** An item of a bag. `index` is where it stands there, written by the bag; -1 while it is in none. */
export interface ListItem {
  index: number
}

/**
 * An unordered collection for what comes and goes with each request; an item is in one bag at most. A Set grows and shrinks by
 * new tables, and each old table points to the next one: once an old one has been promoted, it keeps all later ones, and what
 * they held, until a full garbage collection.
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

  /** Calls `act` with each item; with one perhaps twice, if `act` deletes another. */
  forEach(act: (item: Item) => void): void {
    for (let i = this.#items.length - 1; i >= 0; i--) if (i < this.#items.length) act(this.#items[i]!)
  }
}
