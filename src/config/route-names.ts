import type { Settings } from './schema.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

/** The label of all callers that `clients` does not list. */
export const OTHER_CLIENTS = 'other'
/** Maximum clients that have series of their own: each has some for every route that it calls. */
const MAX_LISTED = 1000

/** Yields names that two routes have, and clients that the metrics cannot show by their names. */
export function* routeNameIssues({ routes, clients, metrics }: Settings): Generator<Issue> {
  const firsts = new Map<string, number>()
  for (const [i, { name }] of routes.entries()) {
    if (name === undefined) continue
    const first = firsts.get(name)
    if (first === undefined) firsts.set(name, i)
    else yield issueAt(['routes', i, 'name'], `is also the name of routes[${first}]; write another`)
  }
  if (metrics.clients !== 'listed') return
  if (clients.length > MAX_LISTED)
    yield issueAt(
      ['metrics', 'clients'],
      `has series for each of "clients", and there are ${clients.length}; at most ${MAX_LISTED} may be listed, so write none`,
    )
  for (const [i, { id }] of clients.entries())
    if (id === OTHER_CLIENTS)
      yield issueAt(
        ['clients', i, 'id'],
        'is the label of all clients that are not listed; set "metrics.clients" to none',
      )
}
