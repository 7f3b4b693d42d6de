import type { Compiled } from './config.ts'
import { type Issue, issueAt, nearest } from './yaml/issue.ts'

/** Warns about clients without a key in a file without tokens: no call gets their settings. */
export function* keylessClientWarnings({ apiKeys, clients, par, tokens }: Compiled): Generator<Issue> {
  if (apiKeys.length === 0 || tokens.length > 0 || par !== undefined) return
  const known = new Set(apiKeys.map(({ client }) => client))
  for (const [i, { caller }] of clients.entries()) {
    if (known.has(caller)) continue
    const similar = nearest(caller, [...known])
    const meant = similar === undefined ? '' : `; did you mean "${similar}"?`
    yield issueAt(['clients', i, 'id'], `has no key, so that no call gets these settings${meant}`)
  }
}
