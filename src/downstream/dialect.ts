import type { Dialect } from './reply.ts'
import type { Route } from './router.ts'
import { parseHost } from './target.ts'

/** In whose words the gateway's own answers on a route are: the upstream's whose clients read them. */
export function dialectOf({ upstream, authenticate }: Route): Dialect {
  return upstream === 'identity' || authenticate === 'par' ? 'oauth' : 'problem'
}

/** In whose words a `Host` is answered while no route is known: in those of OAuth where every route that names it is. */
export function hostDialects(routes: readonly Route[]): (host: string | undefined) => Dialect {
  const dialects = new Map<string, Dialect>()
  for (const route of routes) {
    if (route.host === undefined || dialects.get(route.host) === 'problem') continue
    dialects.set(route.host, dialectOf(route))
  }
  return (host = '') => dialects.get(parseHost(host)?.host ?? '') ?? 'problem'
}
