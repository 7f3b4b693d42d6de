import { type OutageMode, strictestMode } from '../limit/quota.ts'
import type { Limit } from './limit.ts'

interface LimitedRoute {
  readonly limits: readonly Limit[]
  readonly respond?: string | undefined
}

/** True if a limit may be left out of a call, which is then decided without it. */
export const mayBeLeftOut = ({ when, unless, skipsMissing }: Limit): boolean =>
  (when ?? unless) !== undefined || skipsMissing === true

/** True if every call of a route gets a 503 while the store does not answer. */
export const needsStore = ({ limits }: LimitedRoute, onOutage: OutageMode): boolean =>
  limits.some((limit) => !mayBeLeftOut(limit) && strictestMode([limit], onOutage) === 'deny')

/**
 * True if no call can be decided while the store does not answer. Routes that the gateway answers by
 * itself do not count: a probe of health must not keep such a gateway ready.
 */
export function everyRouteNeedsStore(
  routes: readonly LimitedRoute[],
  store: 'memory' | { readonly onOutage: OutageMode },
): boolean {
  if (store === 'memory') return false
  const forwarded = routes.filter(({ respond }) => respond === undefined)
  return forwarded.length > 0 && forwarded.every((route) => needsStore(route, store.onOutage))
}
