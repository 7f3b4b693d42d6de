const FIRST_PAUSE_MS = 5
const MAX_PAUSE_MS = 50

/** Waits until a condition is true, which is checked less and less often. Fails after `withinMs` with the name of the condition. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  withinMs = 100_000,
): Promise<void> {
  const end = performance.now() + withinMs
  for (let pauseMs = FIRST_PAUSE_MS; !(await condition()); pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 1.2)) {
    if (performance.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
  }
}
