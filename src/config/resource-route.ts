import { metadataPath } from '../authenticate/token/resource-metadata.ts'
import { covers, type Pattern, parsePattern } from '../downstream/pattern.ts'
import type { Route } from '../downstream/router.ts'
import { asList } from '../runtime/json.ts'
import type { Settings } from './schema.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

type WrittenRoute = Settings['routes'][number]
/** A route of the file, or that of the metadata. */
export type ServedRoute = Omit<WrittenRoute, 'respond'> & Pick<Route, 'respond'>

/** Returns the resource of `tokens.resource`, which only one issuer may have. */
export const resourceOf = ({ tokens }: Pick<Settings, 'tokens'>): string | undefined =>
  asList(tokens ?? []).find(({ resource }) => resource !== undefined)?.resource

/**
 * Returns the route of the metadata of a protected resource (RFC 9728 section 3), which the router
 * matches before all others: on the host of the resource if the file names that host, else on each.
 */
export function resourceRoute(resource: string, { listen, routes }: Settings): ServedRoute {
  const { hostname } = new URL(resource)
  const isNamed = routes.some(({ host }) => host === hostname) || listen.hosts?.includes(hostname) === true
  const match = `GET ${isNamed ? hostname : ''}${metadataPath(resource)}`
  const pattern = parsePattern(match) as Pattern
  const own = { respond: 'resource', authenticate: 'none' } as const
  return { ...pattern, ...own, match, scope: [], limits: [], maxBody: 0, body: false }
}

/** Yields a route for exactly the path of the metadata, which would never match. */
export function* resourceIssues(settings: Settings): Generator<Issue> {
  const resource = resourceOf(settings)
  if (resource === undefined) return
  const { methods: _, ...own } = resourceRoute(resource, settings)
  const pattern = { ...own, methods: undefined, hosts: settings.listen.hosts }
  for (const [i, route] of settings.routes.entries())
    if (covers(pattern, route))
      yield issueAt(
        ['routes', i, 'match'],
        'is the path of the metadata of "tokens.resource", which the gateway serves; remove one',
      )
}
