// Loaded before the command line: checks watched files twenty times a second, so that tests wait less for a reload.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const { watchFile } = fs
fs.watchFile = (file, options, listener) => watchFile(file, { ...options, interval: 50 }, listener)
syncBuiltinESMExports()
