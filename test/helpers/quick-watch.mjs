// Loaded before the command line: polls the watched files twenty times a second, so that tests wait less for a reload.
import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers'

const { setInterval } = timers
timers.setInterval = (callback, ms, ...args) => setInterval(callback, ms === 1000 ? 50 : ms, ...args)
syncBuiltinESMExports()
