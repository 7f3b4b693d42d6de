/** Does `npm run test:long` run, with time to look further? */
export const LONG = process.env['SLUICE_LONG'] === '1'
const LONG_MS = 60_000

/** A slice of seconds in the suite, a minute each in `npm run test:long`. What fails prints its seed. */
export const within = (numRuns: number, ms = 800) => ({
  numRuns: LONG ? 100_000_000 : numRuns,
  interruptAfterTimeLimit: LONG ? LONG_MS : ms,
})

/** For tests that run that long. */
export const PATIENCE_MS = LONG ? 3 * LONG_MS : 20_000
