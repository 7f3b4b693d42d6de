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

/** The limits of a route, compiled. */
type CompiledLimits = ReturnType<typeof compileLimits>

/**
 * Compiles the path parameters and the limits of each route, for the gateway, for `explain` and for
 * `replay`. Most routes have the same few limits, which they share.
 */
export function compileRoutes<R extends LimitedRoute>(routes: readonly R[], options: LimitOptions) {
  const known = new Map<Limit, { readonly compiled: CompiledLimit; readonly number: number }>()
  const shared = new Map<string, CompiledLimits>()
  function compile(limit: Limit) {
    const one = known.get(limit) ?? { compiled: compileLimit(limit, options), number: known.size }
    known.set(limit, one)
    return one
  }
  function compileAll(limits: readonly Limit[]): CompiledLimits {
    const all = limits.map(compile)
    const id = all.map(({ number }) => number).join()
    const compiled =
      shared.get(id) ??
      compileLimits(
        all.map((one) => one.compiled),
        options.parameters,
      )
    shared.set(id, compiled)
    return compiled
  }

  return routes.map((route) => ({
    ...route,
    counted: countedParameters(route),
    refuseParams: compileParameters(route, route.parameters ?? options.parameters ?? {}),
    ...compileAll(route.limits),
  }))
}

const compileLimits = (compiled: readonly CompiledLimit[], parameters: Parameters | undefined) => ({
  compiled,
  quotas: applyAll(compiled),
  callersOf: compileCallers(
    compiled.map(({ limit }) => limit),
    parameters,
  ),
})
