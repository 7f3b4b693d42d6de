/** Returns a function that collects items, and calls `act` with each of them when `later` calls back. */
function collect<Item>(act: (item: Item) => void, later: (flush: () => void) => void) {
  let waiting: Item[] = []
  function flush(): void {
    const items = waiting
    waiting = []
    for (const item of items) act(item)
  }
  return (item: Item): void => {
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
