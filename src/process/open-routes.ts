import type { Config } from '../config/schema.ts'
import { errorFormatOf, hostErrorFormats } from '../downstream/reply.ts'
import { createRouter } from '../downstream/router.ts'
import { servedHosts } from '../downstream/target.ts'
import type { GatewayDeps, GatewayRoute } from '../gateway/exchange.ts'
import { decisionHeaders, draftHeaders } from '../limit/decision.ts'
import { encodePart } from '../limit/key.ts'
import { compileLimits, type LimitedRoute, proofQuota } from '../limit/limit.ts'
import type { Overrides } from '../limit/overrides.ts'
import { compileParameters } from '../limit/parameters.ts'
import { hashTag } from '../limit/redis/hash-slot.ts'
import type { Log } from '../observe/log.ts'
import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import type { Resources } from './resources.ts'

/** Opens the upstreams, by name; each keeps its sockets over reloads that do not change it. */
export function openUpstreams(resources: Resources, upstreams: readonly Upstream[], log: Log) {
  function open(upstream: Upstream): Forward {
    const { name } = upstream
    return createForward(upstream, ({ address, up, cause }) => {
      if (up) log.info({ upstream: name, address }, 'upstream address up')
      else log.warn({ upstream: name, address, cause }, 'upstream address down')
    })
  }
  return new Map(upstreams.map((one) => [one.name, resources.get('upstream', one, () => open(one))]))
}

const withDraftHeaders: GatewayDeps['rateLimitHeaders'] = (decision, quotas) =>
  decisionHeaders(decision) + draftHeaders(decision, quotas)

/** Connects the routes with the parts that serve them; keys of limits start with `prefix`. */
export function compileRoutes(
  { routes, listen, headers, limits, clientLimits, parameters }: Config,
  prefix: string,
  forwards: ReadonlyMap<string, Forward>,
  overrides: Overrides,
) {
  const perClient = limits.filter(({ per }) => per.length === 1 && per[0] === 'client')

  /** Returns the function that applies the first live limit to a caller; that of `respond` is the first which it lists. */
  function compileShown(route: LimitedRoute): GatewayRoute['shownQuota'] {
    const live = (route.respond === undefined ? route.limits : perClient).filter(({ shadow }) => !shadow)
    const compiled = live.map((limit) => ({
      limit,
      apply: compileLimits([limit], prefix, clientLimits, overrides),
    }))
    return (caller, params) => {
      const parts = { ...params, ...caller }
      const found = compiled.find(({ limit }) => limit.per.every((part) => part in parts))
      return found?.apply(caller, params, Date.now())[0]
    }
  }

  function serve(route: LimitedRoute): GatewayRoute {
    const apply = compileLimits(route.limits, prefix, clientLimits, overrides)
    return {
      ...route,
      forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
      errorFormat: errorFormatOf(route),
      refuseParams: compileParameters(route, parameters),
      needsUser: route.limits.some(({ per }) => per.includes('user')),
      quotas: (caller, params) => apply(caller, params, Date.now()),
      shownQuota: compileShown(route),
      proofQuota({ id, windowMs }, caller, quotas) {
        // Beside the limits, so that a cluster decides it with them; but a replay may come from another address.
        const byClient = quotas.length === 0 || route.limits[0]!.per[0] === 'ip'
        const first = byClient ? encodePart(caller.client!) : hashTag(quotas[0]!.key)
        return proofQuota(prefix, first, id, windowMs)
      },
    }
  }
  return {
    match: createRouter(routes.map(serve)),
    ...servedHosts(routes, listen.hosts),
    errorFormatOf: hostErrorFormats(routes),
    rateLimitHeaders: headers.draft === 'draft-10' ? withDraftHeaders : decisionHeaders,
  }
}
