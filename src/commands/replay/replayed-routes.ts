import type { Config } from '../../config/schema.ts'
import type { Caller } from '../../limit/caller.ts'
import { compileLimits, type LimitedRoute, type Quota } from '../../limit/limit.ts'
import { compileParameters, type RefuseParams } from '../../limit/parameters.ts'
import { createRouter, type Params, parsePattern } from '../../downstream/router.ts'
import { segmentsOf } from '../../downstream/target.ts'
import type { LoggedCall } from './logged-call.ts'

/** What a configuration says of a logged call: which limits it is charged to, or why it is to none. */
export type Charged =
  | { readonly quotas: readonly Quota[] }
  /** No route takes it or its path parameters, its route has no limits, or its line lacks what they are counted by. */
  | 'unmatched'
  | 'unlimited'
  | 'lacking'

/** Applies the limits of a configuration to a logged call, decided at an instant (epoch milliseconds). */
export type ChargesOf = (call: LoggedCall, nowMs: number) => Charged

/** Can this limit be replayed? The access log names no users. */
export function isReplayable({ per }: { readonly per: readonly string[] }): boolean {
  return !per.includes('user')
}

interface ReplayedRoute extends LimitedRoute {
  readonly parts: ReadonlySet<string>
  readonly refuseParams: RefuseParams
  quotas(caller: Caller, params: Params, nowMs: number): readonly Quota[]
}

const NO_PARAMS: Params = {}

/** Matches logged calls by the gateway's own router; where the path or host is not logged, by what the recorded route says of it. */
export function createCharges({
  routes,
  clientLimits,
  parameters,
}: Pick<Config, 'routes' | 'clientLimits' | 'parameters'>): ChargesOf {
  const replayed = routes.map((route): ReplayedRoute => {
    const limits = route.limits.filter((limit) => isReplayable(limit))
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
  const hostOf = rememberingHosts()

  function find(call: LoggedCall): { readonly route: ReplayedRoute; readonly params: Params } | undefined {
    if (call.path === undefined) {
      const route = byName.get(call.route ?? '')
      return route && { route, params: NO_PARAMS }
    }
    const found = match(call.method, call.host ?? hostOf(call.route), segmentsOf(call.path))
    return found !== undefined && 'route' in found ? found : undefined
  }

  return (call, nowMs) => {
    const found = find(call)
    if (found === undefined) return 'unmatched'
    const { route, params } = found
    if (route.limits.length === 0) return 'unlimited'
    // Nobody proved to the recorded gateway who called, where this one would ask.
    if (route.authenticate === 'bearer' && call.client === undefined) return 'lacking'
    for (const part of route.parts) {
      if (part === 'ip' ? call.ip === undefined : part !== 'client' && params[part] === undefined)
        return 'lacking'
    }
    if (route.refuseParams(params) !== undefined) return 'unmatched'
    const { client, ip = '' } = call
    const caller = client === undefined ? { ip } : { client, ip }
    return { quotas: route.quotas(caller, params, nowMs) }
  }
}

/** The hosts that routes name; the empty text for a route that takes every host, which no route's host is. */
function rememberingHosts(): (route: string | undefined) => string {
  const hosts = new Map<string, string>()
  return (route = '') => {
    let host = hosts.get(route)
    if (host === undefined) {
      const pattern = parsePattern(route)
      host = typeof pattern === 'string' ? '' : (pattern.host ?? '')
      if (hosts.size < MOST_ROUTES) hosts.set(route, host)
    }
    return host
  }
}

/** More than any configuration has; a log is not trusted to have so many. */
const MOST_ROUTES = 10_000
