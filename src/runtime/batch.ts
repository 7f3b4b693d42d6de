/** Returns a function that gathers items, and has `act` called with each when `later` calls back. */
function gather<Item>(act: (item: Item) => void, later: (flush: () => void) => void): (item: Item) => void {
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
 * Returns a function that has `act` called with each item at the end of this iteration of the event loop, after all that it
 * reads. One immediate serves them all: what it writes wakes a peer once, and it finds code and data in the processor's caches.
 */
export const atIterationEnd = <Item>(act: (item: Item) => void) => gather(act, setImmediate)

export const callAtIterationEnd = atIterationEnd((act: () => void) => act())

/** As `atIterationEnd`, but before the event loop goes on: after what this callback of it, and the ticks that it left, have done. */
export const atCallbackEnd = <Item>(act: (item: Item) => void) => gather(act, process.nextTick)
