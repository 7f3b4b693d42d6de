import { randomBytes } from 'node:crypto'

/** Returns a function that collects items, and calls `act` with each of them when `later` calls back. */
function collect<Item>(act: (item: Item) => void, later: (flush: () => void) => void): (item: Item) => void {
  let waiting: Item[] = []
  function flush(): void {
    const items = waiting
    waiting = []
    for (const item of items) act(item)
  }
  return (item) => {
    if (waiting.push(item) === 1) later(flush)
  }
}

/**
 * Calls a function at the end of this iteration of the event loop, after all reads. One immediate
 * serves all functions: their writes wake the peer once. An immediate for each response: +9 %
 * processor time (`npm run bench:gate`).
 */
export const callAtIterationEnd = collect((act: () => void) => act(), setImmediate)

/**
 * Returns a function that calls `act` with each item after the current callback. Logging a refused
 * request at once: +4 % processor time (`npm run bench:gate -- REF --refused`).
 */
export const atCallbackEnd = <Item>(act: (item: Item) => void) => collect(act, process.nextTick)

const UUIDS = 64
const HEX = /(.{8})(.{4}).(.{3}).(.{3})(.{12})/g
const UUID_LENGTH = 36

/**
 * Creates a source of random UUIDs (RFC 9562 section 5.4), which makes many at once, in one text.
 * `randomUUID` for each: 0.5 kB of garbage (`npm run bench -- --rows garbage`).
 */
export function createUuids(): () => string {
  let uuids = ''
  let next = 0
  return () => {
    if (next === uuids.length) {
      uuids = randomBytes(UUIDS * 16)
        .toString('hex')
        .replace(HEX, '$1-$2-4$3-a$4-$5')
      next = 0
    }
    return uuids.slice(next, (next += UUID_LENGTH))
  }
}

/**
 * Caches the results of `compute` for up to `max` texts of at most `maxLength`, which callers may
 * choose. Drops all of them when full.
 */
export function memoize<Value>(compute: (text: string) => Value, max: number, maxLength: number) {
  const results = new Map<string, Value>()
  return (text: string): Value => {
    const cached = results.get(text)
    if (cached !== undefined) return cached
    const value = compute(text)
    if (text.length > maxLength) return value
    if (results.size === max) results.clear()
    results.set(text, value)
    return value
  }
}

/** Returns the first integer from `low` that is wanted, as all later ones are; `high` if none before it is. */
export function search(low: number, high: number, isWanted: (at: number) => boolean): number {
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (isWanted(middle)) high = middle
    else low = middle + 1
  }
  return low
}

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
    for (let i = this.#items.length - 1; i >= 0; i--) if (i < this.#items.length) act(this.#items[i]!)
  }
}

/**
 * Callers without slots that are remembered: a Map whose entries come and go makes garbage in the
 * old space; `npm run bench -- --rows garbage`.
 */
const MAX_REMEMBERED = 1000

/** Counts the slots in use, of all callers and of each. */
export function createSlots(max: number, maxEach: number) {
  const held = new Map<string, number>()
  let taken = 0
  const of = (caller: string): number => held.get(caller) ?? 0
  function take(caller: string, count = 1): void {
    taken += count
    held.set(caller, of(caller) + count)
    if (held.size > MAX_REMEMBERED + taken) for (const [one, slots] of held) if (slots === 0) held.delete(one)
  }
  return {
    isFull: (): boolean => taken >= max,
    isFree: (caller: string, count = 1) => taken + count <= max && of(caller) + count <= maxEach,
    of,
    take,
    release: (caller: string, count = 1): void => take(caller, -count),
  }
}
