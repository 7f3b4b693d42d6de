import type { Route } from '../downstream/router.ts'
import { applyAll, type CompiledLimit, compileLimit, type LimitOptions } from './apply.ts'
import type { Limit } from './limit.ts'
import { compileCallers } from './name-callers.ts'
import { compileParameters, countedParameters, type Parameters } from './parameter-kinds.ts'

interface LimitedRoute extends Route {
  readonly limits: readonly Limit[]
  /** The kinds of the team whose file has the route; undefined for the main file. */
  readonly parameters?: Parameters | undefined
}

/** A route with its path parameters and limits compiled. */
export type CompiledRoute<R extends LimitedRoute> = ReturnType<typeof compileRoutes<R>>[number]

/**
 * Compiles the path parameters and the limits of each route, for the gateway, for `explain` and for
 * `replay`.
 */
export function compileRoutes<R extends LimitedRoute>(routes: readonly R[], options: LimitOptions) {
  // Most routes have the same few limits: 10,000 would hold 20 MB of them otherwise.
  const known = new Map<Limit, CompiledLimit>()
  function compile(limit: Limit): CompiledLimit {
    const compiled = known.get(limit) ?? compileLimit(limit, options)
    known.set(limit, compiled)
    return compiled
  }

  return routes.map((route) => {
    const compiled = route.limits.map(compile)
    return {
      ...route,
      compiled,
      counted: countedParameters(route),
      refuseParams: compileParameters(route, route.parameters ?? options.parameters ?? {}),
      quotas: applyAll(compiled),
      callersOf: compileCallers(route.limits, options.parameters),
    }
  })
}
