import type { Config } from '../../config/schema.ts'
import { createRouter, type Params } from '../../downstream/router.ts'
import { segmentsOf } from '../../downstream/target.ts'
import { compileLimits, type Quota } from '../../limit/limit.ts'
import { compileParameters } from '../../limit/parameters.ts'
import type { LoggedCall } from './access-line.ts'

/**
 * Returns the quotas that a logged call, decided at an instant (epoch milliseconds), is charged to, or why it is charged to
 * none: no route takes it or its path parameters, its route has no limits, or its line lacks what they are counted by.
 */
export type ChargesOf = (
  call: LoggedCall,
  nowMs: number,
) => readonly Quota[] | 'unmatched' | 'unlimited' | 'lacking'

/** True if a limit can be replayed: the access log names no users. */
export function isReplayable({ per }: { readonly per: readonly string[] }): boolean {
  return !per.includes('user')
}

/** Matches logged calls by the gateway's own router; where the path or host is not logged, by the recorded route. */
export function createCharges({ routes, clientLimits, parameters }: Config): ChargesOf {
  const replayed = routes.map((route) => {
    const limits = route.limits.filter(isReplayable)
    return {
      ...route,
      // A log may not say which host was addressed.
      hosts: undefined,
      limits,
      parts: new Set(limits.flatMap(({ per }) => per)),
      refuseParams: compileParameters({ ...route, limits }, parameters),
      quotas: compileLimits(limits, 'replay', clientLimits),
    }
  })
  const match = createRouter(replayed)
  const byName = new Map(replayed.map((route) => [route.match, route]))

  function find({ method, host, path, route = '' }: LoggedCall) {
    if (path === undefined || host === undefined) {
      const named = byName.get(route)
      return named && { route: named, params: {} as Params }
    }
    const found = match(method, host, segmentsOf(path))
    return found !== undefined && 'route' in found ? found : undefined
  }

  return (call, nowMs) => {
    const found = find(call)
    if (found === undefined) return 'unmatched'
    const { route, params } = found
    if (route.limits.length === 0) return 'unlimited'
    const { client, ip } = call
    // The recorded gateway did not authenticate a call that this one would.
    if (route.authenticate === 'bearer' && client === undefined) return 'lacking'
    for (const part of route.parts) {
      if (part !== 'client' && (part === 'ip' ? ip : params[part]) === undefined) return 'lacking'
    }
    if (route.refuseParams(params) !== undefined) return 'unmatched'
    return route.quotas({ ...(client !== undefined && { client }), ip: ip ?? '' }, params, nowMs)
  }
}
