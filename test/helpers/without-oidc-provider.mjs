// Loaded before the command line: simulates a machine without the optional package oidc-provider.
import * as module from 'node:module'

const resolve = (name, context, next) =>
  next(name === 'oidc-provider' ? 'oidc-provider-that-is-not-there' : name, context)

// Node.js 20 has only the second function, which is deprecated in Node.js 26.
if ('registerHooks' in module) module.registerHooks({ resolve })
else
  module.register(
    `data:text/javascript,${encodeURIComponent(`export const resolve = ${resolve.toString()}`)}`,
  )
