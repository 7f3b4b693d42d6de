import type { Compiled } from './config.ts'
import { type Issue, issueAt, nearest } from './yaml/issue.ts'

/** Warns about clients of a file without tokens that have no key: their settings apply to nobody. */
export function* keylessClientWarnings({ apiKeys, clients, par, tokens }: Compiled): Generator<Issue> {
  const ids = [...new Set(apiKeys.map(({ client }) => client))]
  if (ids.length === 0 || tokens.length > 0 || par !== undefined) return
  const known = new Set(ids)
  for (const [i, { caller }] of clients.entries()) {
    if (known.has(caller)) continue
    const similar = nearest(caller, ids)
    const meant = similar === undefined ? '' : `; did you mean "${similar}"?`
    yield issueAt(['clients', i, 'id'], `has no key, so that these settings apply to nobody${meant}`)
  }
}
