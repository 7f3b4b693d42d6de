/**
 * Returns a function that has `act` called with each item at the end of this iteration of the event loop, after all that it
 * reads. One immediate serves them all: what it writes wakes a peer once, and it finds code and data in the processor's caches.
 */
export function atIterationEnd<Item>(act: (item: Item) => void): (item: Item) => void {
  let waiting: Item[] = []
  function flush(): void {
    const items = waiting
    waiting = []
    for (const item of items) act(item)
  }
  return (item) => {
    if (waiting.push(item) === 1) setImmediate(flush)
  }
}

export const callAtIterationEnd = atIterationEnd((act: () => void) => act())
