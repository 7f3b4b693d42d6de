import type { Config } from '../config/schema.ts'
import { hostErrorFormats } from '../downstream/reply.ts'
import { createRouter, isGuarded, type Params } from '../downstream/router.ts'
import { servedHosts } from '../downstream/target.ts'
import type { GatewayDeps, GatewayRoute } from '../gateway/exchange.ts'
import { decisionHeaders, draftHeaders } from '../limit/decision.ts'
import { encodePart, isPerClient, prefixOf } from '../limit/key.ts'
import { type Caller, compileLimits, proofQuota } from '../limit/limit.ts'
import type { Overrides } from '../limit/overrides.ts'
import { compileParameters } from '../limit/parameters.ts'
import { hashTag } from '../limit/redis/hash-slot.ts'
import type { Forward } from '../upstream/upstream.ts'

export type CompiledRoute = ReturnType<typeof compileRoutes>[number]

/** Compiles the path parameters and the limits of each route, for the gateway, for `explain` and for `replay`. */
export function compileRoutes({ routes, clientLimits, parameters, store }: Config, overrides?: Overrides) {
  return routes.map((route) => {
    const apply = compileLimits(route.limits, prefixOf(store), clientLimits, overrides)
    return {
      ...route,
      refuseParams: compileParameters(route, parameters),
      quotas: (caller: Caller, params: Params, nowMs = Date.now()) => apply(caller, params, nowMs),
    }
  })
}

const withDraftHeaders: GatewayDeps['rateLimitHeaders'] = (decision, quotas) =>
  decisionHeaders(decision) + draftHeaders(decision, quotas)

/** Connects the routes with the upstreams that serve them, and creates their router. */
export function openRoutes(config: Config, forwards: ReadonlyMap<string, Forward>, overrides: Overrides) {
  const { routes, listen, headers, limits, clientLimits } = config
  const errorFormats = new Map(config.upstreams.map(({ name, errors }) => [name, errors]))
  const prefix = prefixOf(config.store)
  const perClient = limits.filter(isPerClient)

  /** Applies the first live limit whose parts the caller has; on `respond` routes, the first one per client. */
  function compileShown(route: CompiledRoute): GatewayRoute['shownQuota'] {
    const live = (route.respond === undefined ? route.limits : perClient).filter(({ shadow }) => !shadow)
    const compiled = live.map((limit) => ({
      per: limit.per,
      apply: compileLimits([limit], prefix, clientLimits, overrides),
    }))
    return (caller, params) => {
      const parts = { ...params, ...caller }
      const found = compiled.find(({ per }) => per.every((part) => part in parts))
      return found?.apply(caller, params, Date.now())[0]
    }
  }

  const serve = (route: CompiledRoute): GatewayRoute => ({
    ...route,
    forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
    errorFormat: isGuarded(route) ? 'oauth' : (errorFormats.get(route.upstream ?? '') ?? 'problem'),
    needsUser: route.limits.some(({ per }) => per.includes('user')),
    shownQuota: compileShown(route),
    proofQuota({ id, windowMs }, caller, quotas) {
      // In the hash slot of the limits, so that a cluster decides both at once; but a replay may come from another address.
      const byClient = quotas.length === 0 || route.limits[0]!.per[0] === 'ip'
      const first = byClient ? encodePart(caller.client!) : hashTag(quotas[0]!.key)
      return proofQuota(prefix, first, id, windowMs)
    },
  })
  const served = compileRoutes(config, overrides).map(serve)
  return {
    match: createRouter(served),
    ...servedHosts(routes, listen.hosts),
    errorFormatOf: hostErrorFormats(served),
    rateLimitHeaders: headers.draft === 'draft-10' ? withDraftHeaders : decisionHeaders,
  }
}
