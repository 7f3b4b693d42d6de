import { counterNameOf } from '../policy/key.ts'
import type { Limit } from '../policy/limit.ts'
import type { Settings } from './schema.ts'
import { actualOf, costOf, isReserve } from './sections/costs.ts'
import { type Issue, issueAt, issueAtKey, type Path } from './yaml/issue.ts'

type Route = Settings['routes'][number]

/** The limits of a route; undefined for a name that no limit has, which is a mistake of its own. */
export type OwnLimits = readonly (Limit | undefined)[]

/**
 * Yields costs for limits that a route does not have, those that the limit never allows, and numbers
 * of a response where the gateway sees none. `path` is that of the route's `cost`.
 */
export function* costIssues(settings: Settings, route: Route, own: OwnLimits, path: Path): Generator<Issue> {
  const { cost } = route
  if (cost === undefined) return
  const limits = own.flatMap((limit) => limit ?? [])
  const isForAll = typeof cost === 'number' || isReserve(cost)
  if (isForAll && cost !== 0 && cost !== 1 && limits.every(({ isConcurrent }) => isConcurrent))
    yield issueAtKey(path, 'applies only to limits in windows, and this route has none; remove it')
  for (const [name, charge] of Object.entries(isForAll ? {} : cost)) {
    const counter = limits.find((limit) => counterNameOf(limit) === name)
    if (counter === undefined || (counter.isConcurrent && charge !== 0))
      yield issueAtKey(
        [...path, name],
        'counts no points here; write a limit of the route with a window, or remove it',
      )
  }
  for (const limit of limits) {
    if (limit.isConcurrent) continue
    const written = isForAll ? path : [...path, counterNameOf(limit)]
    const isSettled = actualOf(route, limit) !== undefined
    const { name, limit: most, claim } = limit
    if (claim === undefined && costOf(route, limit) > Math.max(1, most))
      yield issueAt(
        isSettled ? [...written, 'reserve'] : written,
        `is above the limit "${name}", which refuses every call; write at most ${most}`,
      )
    const conflict = isSettled ? unreadBy(settings, route, limit) : undefined
    if (conflict !== undefined) yield issueAtKey([...written, 'actual'], conflict)
  }
}

/** Returns why the gateway cannot charge a call of a route by its response; undefined if it can. */
function unreadBy({ forwardAuth, limits }: Settings, { upgrade }: Route, limit: Limit): string | undefined {
  if (forwardAuth !== undefined)
    return 'cannot be combined with "forwardAuth", which sees no response; write only points'
  if (upgrade !== undefined)
    return 'cannot be combined with "upgrade", as a WebSocket has no such response; write only points'
  const counter = limits.find(({ name }) => name === counterNameOf(limit))
  if (counter?.together === undefined) return undefined
  return `cannot be combined with "together" of the limit "${counter.name}"; write only points`
}
