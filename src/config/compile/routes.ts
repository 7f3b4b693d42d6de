import type { NameOf } from '../../limit/caller.ts'
import type { ClientLimits, Limit, LimitedRoute } from '../../limit/limit.ts'
import { parsePattern, type Route } from '../../downstream/router.ts'
import type { Settings } from '../schema.ts'

/** The limits as the limiter takes them, in the order of the file. */
export function compileLimits(limits: Settings['limits']): readonly Limit[] {
  return Object.entries(limits).map(([name, { per, limit, windowMs, shadow, changes }]) => ({
    name,
    per,
    limit,
    windowMs,
    shadow,
    changes,
  }))
}

/** The clients' own limits as the limiter takes them. */
export function compileClientLimits(clients: Settings['clients'], nameOf: NameOf): ClientLimits {
  return new Map(
    clients.flatMap(({ id, issuer, limits }) => {
      const own = new Map(Object.entries(limits))
      return own.size > 0 ? [[nameOf(id, issuer), own]] : []
    }),
  )
}

/** The routes as the gateway matches them. All names and patterns were checked before. */
export function compileRoutes(
  routes: Settings['routes'],
  limits: readonly Limit[],
  parMaxBody: number | undefined,
  hosts: readonly string[] | undefined,
): readonly LimitedRoute[] {
  return routes.map(({ limits: names, ...route }) => {
    const pattern = parsePattern(route.match)
    if (typeof pattern === 'string') throw new TypeError(`the pattern "${route.match}" ${pattern}`)
    return {
      ...pattern,
      ...route,
      hosts: pattern.host === undefined ? hosts : undefined,
      maxBody: route.authenticate === 'par' ? parMaxBody! : route.maxBody,
      limits: names.map((name) => limits.find((limit) => limit.name === name)!),
    }
  })
}

/** What the audience of an assertion is, too, unless the file says it: the token and the PAR endpoint. */
export function audiencesOf(issuer: string): readonly string[] {
  const base = issuer.replace(/\/$/, '')
  return [`${base}/token`, `${base}/request`]
}

/** The hosts that the routes name, each once. */
export function hostsOf(routes: readonly Route[]): readonly string[] {
  return [...new Set(routes.flatMap(({ host }) => (host === undefined ? [] : [host])))]
}
