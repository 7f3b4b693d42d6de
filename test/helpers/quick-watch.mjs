// Loaded before the command line: polls the watched files twenty times a second, so that tests wait less for a reload.
import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers'

const { setInterval } = timers
/** `POLL_MS` of src/commands/start.ts. */
const POLL_MS = 400
timers.setInterval = (callback, ms, ...args) => setInterval(callback, ms === POLL_MS ? 50 : ms, ...args)
syncBuiltinESMExports()
