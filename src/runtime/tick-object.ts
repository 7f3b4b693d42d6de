import { executionAsyncResource } from 'node:async_hooks'

const kept: object[] = []

/**
 * Keeps one of the objects that Node makes for each `process.nextTick`; a request makes several calls of
 * it. V8 holds their hidden class weakly: if a garbage collection finds none of them, as while a
 * configuration is read, later ones have another, and V8 makes each by calls of its runtime. In a loop,
 * a tick takes 0.1 us, and then 0.4 to 0.7 on Node 22, 24 and 26. Call it first in a process.
 */
export function keepTickObject(): void {
  process.nextTick(() => kept.push(executionAsyncResource()))
}

/** Returns the kept objects, for the test. */
export const keptTickObjects = (): readonly object[] => kept
