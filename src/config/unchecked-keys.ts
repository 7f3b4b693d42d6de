import { nameIn, wordOf } from '../policy/words.ts'
import type { Compiled } from './config.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

/** Matches a field that has a key by its name, such as `x-api-key`, `apikey` and `ocp-apim-subscription-key`. */
const HAS_KEY = /(?:^|-)(?:api|subscription|access)-?key$/

/**
 * Warns about limits that count by the value of a key which the gateway does not check: callers
 * invent values, each with a counter of its own, and Redis gets the keys themselves.
 */
export function* uncheckedKeyWarnings({ routes, upstreams }: Compiled): Generator<Issue> {
  const identity = new Map(upstreams.map(({ name, identityHeaders }) => [name, identityHeaders]))
  const warned = new Set<string>()
  for (const { authenticate, limits: own, match, upstream = '' } of routes) {
    if (authenticate !== 'none') continue
    const fromProxies = new Set((identity.get(upstream) ?? []).map((field) => field.toLowerCase()))
    for (const { name, per } of own) {
      const key = per.find((part) => isUncheckedKey(part) && !fromProxies.has(nameIn(part)))
      if (key === undefined || warned.has(name)) continue
      warned.add(name)
      // Not at the part: another warning may be there.
      yield issueAt(
        ['limits', name, 'per'],
        `has ${key}, a key that is not checked at "${match}": callers can invent values; write "keys", "authenticate: key" and per: [client], or leave it if the upstream checks the keys`,
      )
    }
  }
}

const isUncheckedKey = (part: string): boolean => wordOf(part).word === 'header' && HAS_KEY.test(nameIn(part))
