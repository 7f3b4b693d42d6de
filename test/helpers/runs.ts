/** True in `npm run test:long`, which has time for more runs. */
export const LONG = process.env['SLUICE_LONG'] === '1'
const LONG_MS = 60_000

/** True in `npm run test:slow` and `npm run test:long`. The former runs each file that imports this one. */
export const FULL = LONG || process.env['SLUICE_SLOW'] === '1'

/** Returns `full` in `npm run test:slow` and `npm run test:long`, and `quick` in `npm test`. */
export const quickly = <T>(quick: T, full: T): T => (FULL ? full : quick)

/** Workers of a gateway that runs as a process of its own, where one worker shows the same in part: two take three processes. */
export const WORKERS = quickly(1, 2)

/** Options for `full` runs in `npm run test:slow`, a quarter of them in `npm test`, and a minute of runs in `npm run test:long`. A failure prints its seed. */
export const runs = (full: number) =>
  LONG
    ? { numRuns: 100_000_000, interruptAfterTimeLimit: LONG_MS }
    : { numRuns: quickly(Math.ceil(full / 4), full) }

/** Timeout of these tests, in milliseconds. */
export const PATIENCE_MS = LONG ? 3 * LONG_MS : 60_000
