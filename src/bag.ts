/** What a bag holds knows its place there; -1 while it is in none. */
export interface InBag {
  place: number
}

/**
 * Holds what comes and goes with each request, in no order. A Set would leave garbage that collections of young objects do not
 * free: each table it has outgrown points to the next one, so an old one keeps all later ones with all that they held.
 */
export class Bag<Item extends InBag> {
  readonly #items: Item[] = []

  get size(): number {
    return this.#items.length
  }

  add(item: Item): void {
    item.place = this.#items.push(item) - 1
  }

  delete(item: Item): void {
    if (item.place === -1) return
    const last = this.#items.pop()!
    if (last !== item) {
      this.#items[item.place] = last
      last.place = item.place
    }
    item.place = -1
  }

  /** Calls back with each item, with some of them twice if others are deleted meanwhile. */
  forEach(act: (item: Item) => void): void {
    for (let i = this.#items.length - 1; i >= 0; i--) if (i < this.#items.length) act(this.#items[i]!)
  }
}
