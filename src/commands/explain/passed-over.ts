import { matchRoute, METHODS, type Route, takesHost } from '../../downstream/router.ts'
import { foldCase, segmentsOf, type Target } from '../../downstream/target.ts'

/** A route that does not take a request, and why. */
export interface PassedOver {
  readonly match: string
  readonly because: string
}

/** Why each of these routes does not take the request. */
export function passedOver(
  routes: readonly Route[],
  method: string,
  target: Pick<Target, 'host' | 'segments'>,
): readonly PassedOver[] {
  return routes.map((route) => ({ match: route.match, because: reasonOf(route, method, target) }))
}

function reasonOf(
  route: Route,
  method: string,
  { host, segments }: Pick<Target, 'host' | 'segments'>,
): string {
  const found = matchRoute([route], method, host, segments)
  if (found !== undefined && 'allow' in found) return `takes ${found.allow.join(', ')}, not ${method}`
  if (found !== undefined) {
    // What the router refuses although a route would take it.
    return METHODS.has(method)
      ? 'takes it, but "authenticate: par" lets nothing but POST to this path, and nothing behind it'
      : `takes any method, but ${method} is none that the gateway takes`
  }
  if (route.host !== undefined && route.host !== host) return `is for the host ${route.host}, not ${host}`
  if (!takesHost(route, host)) return `is for the hosts of listen.hosts, not ${host}`
  return pathReason(route, segments)
}

function pathReason({ match, segments: wanted, rest }: Route, segments: readonly string[]): string {
  const written = segmentsOf(match.slice(match.indexOf('/')))
  for (const [i, want] of wanted.entries()) {
    const have = segments[i]
    if (have === undefined) return `wants a further segment, "${written[i]}"`
    if ('literal' in want && foldCase(have) !== want.literal) return `wants "${written[i]}", not "${have}"`
  }
  return rest ? 'takes another path' : `ends before "${segments[wanted.length]}"`
}
