import { redactUrl } from '../authenticate/token/fetch-json.ts'
import { SECRETS } from './schema.ts'
import { isMapping } from './yaml/source.ts'

type Path = readonly (string | number)[]

/** What stands for a secret that is elsewhere: a file or an environment variable. */
const REFERENCE = /^(?:file:.*|\$\{\w+\})$/s

/** Returns a value of the file at a path with `***` in place of secrets, and of the user and the query of URLs. */
export function hideSecrets(value: unknown, path: Path = []): unknown {
  if (Array.isArray(value)) return value.map((item, i) => hideSecrets(item, [...path, i]))
  if (isMapping(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [key, hideSecrets(inner, [...path, key])]),
    )
  if (typeof value !== 'string' || REFERENCE.test(value)) return value
  if (/^\w+:\/\//.test(value)) return redactUrl(value.replace(/^(\w+:\/\/).*@/s, '$1***@'))
  return SECRETS.some((secret) => matches(secret, path)) ? '***' : value
}

const matches = (pattern: readonly string[], path: Path): boolean =>
  pattern.length === path.length && pattern.every((step, i) => step === '*' || step === String(path[i]))
