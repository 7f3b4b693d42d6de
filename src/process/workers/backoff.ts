const FIRST_MS = 100
const LONGEST_MS = 30_000
/** Whoever lived so long had started well. */
const STEADY_MS = 10_000

/** How long to wait before what ended is started again, given how long it lived: ever longer, unless it had started well. */
export function createBackoff(): (livedMs: number) => number {
  let nextMs = 0
  return (livedMs) => {
    if (livedMs >= STEADY_MS) nextMs = 0
    const waitMs = nextMs
    nextMs = Math.min(LONGEST_MS, Math.max(FIRST_MS, nextMs * 2))
    return waitMs
  }
}
