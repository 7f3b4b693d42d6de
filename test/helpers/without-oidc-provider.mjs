// Loaded before the command line: as on a machine where the optional package oidc-provider was not installed.
import * as module from 'node:module'

const resolve = (name, context, next) =>
  next(name === 'oidc-provider' ? 'oidc-provider-that-is-not-there' : name, context)

// Node.js 20 has only the second, which Node.js 26 reports as deprecated.
if ('registerHooks' in module) module.registerHooks({ resolve })
else
  module.register(
    `data:text/javascript,${encodeURIComponent(`export const resolve = ${resolve.toString()}`)}`,
  )
