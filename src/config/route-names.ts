import type { Settings } from './schema.ts'
import type { Issue } from './yaml/issue.ts'

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
    else yield { path: ['routes', i, 'name'], message: `is also the name of routes[${first}]; write another` }
  }
  if (metrics.clients !== 'listed') return
  if (clients.length > MAX_LISTED) {
    const message = `has series for each of "clients", of which there are ${clients.length}; at most ${MAX_LISTED} may be listed, so write none`
    yield { path: ['metrics', 'clients'], message }
  }
  const taken = 'is the label of all clients that are not listed; set "metrics.clients" to none'
  for (const [i, { id }] of clients.entries())
    if (id === OTHER_CLIENTS) yield { path: ['clients', i, 'id'], message: taken }
}
