/**
 * Returns a function that calls `act` with each item at the end of this iteration of the event loop, after all reads. One immediate
 * serves all items: their writes wake the peer once. An immediate for each response: +9 % processor time (`npm run bench:gate`).
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
