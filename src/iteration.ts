/**
 * Returns a function that has `act` called with each item at the end of this iteration of the event loop. One immediate serves
 * them all, and finds code and data in the processor's caches.
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
