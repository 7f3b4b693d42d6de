/** Two clocks: one that never goes back, to count on, and the wall clock, to speak of. Milliseconds. */
export interface Clock {
  monotonicMs(): number
  /** The wall clock at an instant of the other one, which is now. */
  wallMs(monotonicMs: number): number
}

/** How far the wall clock may stray from where it was when last looked at, before that is a step and not its granularity. */
const STEP_MS = 20
let wallAheadMs = Date.now() - performance.now()

/** This machine's. One instant is told alike however often it is told: not by `Date.now()` with its whole milliseconds alone. */
export const SYSTEM_CLOCK: Clock = {
  monotonicMs: () => performance.now(),
  wallMs(monotonicMs) {
    const stray = Date.now() - (monotonicMs + wallAheadMs)
    if (Math.abs(stray) > STEP_MS) wallAheadMs += stray
    return monotonicMs + wallAheadMs
  },
}
