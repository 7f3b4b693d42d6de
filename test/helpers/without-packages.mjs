// Loaded before the command line: simulates a machine where Sluice does not find the packages whose names begin with WITHOUT_PACKAGES. Other
// packages find theirs: prom-client requires one of OpenTelemetry.
import * as module from 'node:module'

const resolve = (name, context, next) =>
  next(
    name.startsWith(process.env.WITHOUT_PACKAGES) && !context.parentURL?.includes('/node_modules/')
      ? 'package-that-is-not-there'
      : name,
    context,
  )

// Node.js 20 has only the second function, which is deprecated in Node.js 26.
if ('registerHooks' in module) module.registerHooks({ resolve })
else
  module.register(
    `data:text/javascript,${encodeURIComponent(`export const resolve = ${resolve.toString()}`)}`,
  )
