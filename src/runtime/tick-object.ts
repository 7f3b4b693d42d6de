import { executionAsyncResource } from 'node:async_hooks'

const kept: object[] = []

/**
 * Keeps one of the objects that Node makes for each `process.nextTick`, of which a request takes
 * several. V8 holds their hidden class weakly: if a garbage collection finds none of them, as while a
 * configuration is read, later ones have another, and V8 makes each by calls of its runtime. In a loop,
 * a tick takes 0.1 us, and then 0.4 to 0.7 on Node 22, 24 and 26. Call it before anything is collected.
 */
export function keepTickObject(): void {
  process.nextTick(() => kept.push(executionAsyncResource()))
}

/** Returns what is kept, once the tick is over. */
export const keptTickObjects = (): readonly object[] => kept
