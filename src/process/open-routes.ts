import type { Config } from '../config/schema.ts'
import { errorFormatOf } from '../downstream/reply.ts'
import type { GatewayDeps, GatewayRoute } from '../gateway/deps.ts'
import { decisionHeaders } from '../limit/decision.ts'
import { draftHeaders } from '../limit/draft-headers.ts'
import { encodePart } from '../limit/key.ts'
import { compileLimits, type LimitedRoute, proofQuota } from '../limit/limit.ts'
import { compileParameters } from '../limit/parameters.ts'
import { hashTag } from '../limit/redis/hash-slot.ts'
import type { Log } from '../observe/log.ts'
import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import type { Resources } from './resources.ts'

/** Opens the upstreams, by name; each keeps its sockets over reloads that do not change it. */
export function openUpstreams(
  resources: Resources,
  upstreams: readonly Upstream[],
  log: Log,
): ReadonlyMap<string, Forward> {
  const open = (upstream: Upstream): Forward =>
    createForward(upstream, ({ address, up, cause }) => {
      const fields = { upstream: upstream.name, address }
      if (up) log.info(fields, 'upstream address up')
      else log.warn({ ...fields, cause }, 'upstream address down')
    })
  return new Map(
    upstreams.map((upstream) => [
      upstream.name,
      resources.get('upstream', upstream, open, (forward) => forward.close()),
    ]),
  )
}

/** Connects a route with the parts that serve it. */
export function serveRoute(
  route: LimitedRoute,
  prefix: string,
  { clientLimits, parameters }: Config,
  forwards: ReadonlyMap<string, Forward>,
): GatewayRoute {
  const apply = compileLimits(route.limits, prefix, clientLimits)
  return {
    ...route,
    forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
    errorFormat: errorFormatOf(route),
    refuseParams: compileParameters(route, parameters),
    needsUser: route.limits.some(({ per }) => per.includes('user')),
    quotas: (caller, params) => apply(caller, params, Date.now()),
    proofQuota({ id, windowMs }, caller, quotas) {
      // Beside the limits, so that a cluster decides it with them; but a replay may come from another address.
      const byClient = quotas.length === 0 || route.limits[0]!.per[0] === 'ip'
      const first = byClient ? encodePart(caller.client!) : hashTag(quotas[0]!.key)
      return proofQuota(prefix, first, id, windowMs)
    },
  }
}

/** Returns what writes the fields of a decision, as `headers` asks for. */
export function rateLimitHeaders({ headers }: Config): GatewayDeps['rateLimitHeaders'] {
  if (headers.draft !== 'draft-10') return decisionHeaders
  return (decision, quotas) => [...decisionHeaders(decision), ...draftHeaders(decision, quotas)]
}
