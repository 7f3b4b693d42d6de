// Loaded before the command line: as on a machine where the optional package oidc-provider was not installed.
import { register } from 'node:module'

const hook = `export const resolve = (name, context, next) => next(name === 'oidc-provider' ? 'oidc-provider-that-is-not-there' : name, context)`
register(`data:text/javascript,${encodeURIComponent(hook)}`)
