/**
 * Returns the options of an LRU cache with at most `count` entries, which takes room as it is filled.
 * With `max`, lru-cache takes room for all entries at once: for 10,000 it needs 2 to 5 ms, which
 * each start and reload would wait for, and 0.3 MB.
 */
export const atMost = (count: number) => ({ maxSize: count, sizeCalculation: () => 1 })
