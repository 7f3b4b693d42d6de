/** True in `npm run test:long`, which has time for more runs. */
export const LONG = process.env['SLUICE_LONG'] === '1'
const LONG_MS = 60_000

/** Options for `runs` runs in the suite, and for a minute of runs in `npm run test:long`. A failure prints its seed. */
export const runs = (numRuns: number) =>
  LONG ? { numRuns: 100_000_000, interruptAfterTimeLimit: LONG_MS } : { numRuns }

/** Timeout of these tests, in milliseconds. */
export const PATIENCE_MS = LONG ? 3 * LONG_MS : 30_000
