/** Closes what the tests of this process have started, in the order of the starts. */
const open: (() => unknown)[] = []

/** Calls `close` with the test in which it was passed, or, outside a test, at the end of the file (see close-all.ts). */
export const closeLater = (close: () => unknown): void => void open.push(close)

/** Returns the number of things that are open. */
export const countOpen = (): number => open.length

/** Closes the latest things, until only `count` are open. */
export async function closeDownTo(count: number): Promise<void> {
  while (open.length > count) await open.pop()!()
}

// Vitest ends a worker by SIGTERM, which emits no `exit` without a listener. If all tests of a file are skipped (`-t`), nothing
// is closed before: the processes that the file started would run on.
process.once('SIGTERM', () => process.exit())
