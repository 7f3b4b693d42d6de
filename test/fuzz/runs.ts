/** Does `npm run test:long` run, with time to look further? */
export const LONG = process.env['SLUICE_LONG'] === '1'
const LONG_MS = 60_000

/** So many runs in the suite, a minute of them in `npm run test:long`. What fails prints its seed. */
export const runs = (numRuns: number) =>
  LONG ? { numRuns: 100_000_000, interruptAfterTimeLimit: LONG_MS } : { numRuns }

/** For tests that run that long. */
export const PATIENCE_MS = LONG ? 3 * LONG_MS : 30_000
