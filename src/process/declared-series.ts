import type { Config } from '../config/config.ts'
import { OTHER_CLIENTS } from '../config/route-names.ts'
import { acceptsTokens } from '../downstream/router.ts'
import type { LimitOutcome } from '../limit/limiter.ts'
import type { Metrics } from '../observe/metrics.ts'

type ConfiguredRoute = Config['routes'][number]

/** Shows the series of what may happen first: Prometheus sees no increase in a series that begins with it. */
export function declareSeries(config: Config, metrics: Metrics): void {
  const { limits, routes, upstreams, store } = config
  for (const { name: upstream } of upstreams) {
    metrics.droppedFields.inc({ upstream }, 0)
    metrics.upstreamSeconds.of({ upstream })
  }
  // A list for each limit, which is the same one after a reload.
  for (const { name, shadow } of limits) {
    const outcomes = shadow ? SHADOW_OUTCOMES : LIVE_OUTCOMES
    metrics.decisions.declare(outcomes.map((outcome) => [name, outcome]))
  }
  for (const route of routes) {
    declareRoute(route, config, metrics)
    declareSettlements(route, metrics)
  }
  if (store === 'memory') return
  for (const { onOutage: mode } of limits) if (mode !== undefined) metrics.fallbackDecisions.inc({ mode }, 0)
}

/** Shows the reserves of limits whose calls are charged by what they use. */
function declareSettlements({ limits }: ConfiguredRoute, metrics: Metrics): void {
  for (const { name, actual } of limits) {
    if (actual !== undefined) metrics.settlementsOf(name)
  }
}

const LIVE_OUTCOMES: readonly LimitOutcome[] = ['within', 'near', 'over', 'over_cached']
const SHADOW_OUTCOMES: readonly LimitOutcome[] = ['within', 'near', 'shadow_over']

/** Shows the failures of a route that alerts compare, for the first of its methods. */
function declareRoute(route: ConfiguredRoute, { metrics: { clients } }: Config, metrics: Metrics): void {
  const { requests } = metrics.seriesOf(route)
  const { authenticate, limits, methods, upstream } = route
  const [method = 'GET'] = methods ?? []
  const further = clients === 'listed' ? [OTHER_CLIENTS] : []
  const byUpstream: string[] = []
  const byGateway = ['499', '500']
  if (authenticate !== 'none') byGateway.push('401')
  if (limits.length > 0) byGateway.push('429')
  if (limits.length > 0 || acceptsTokens(route)) byGateway.push('503')
  if (upstream !== undefined) {
    byGateway.push('502', '504')
    byUpstream.push('200', '500', '502', '503', '504')
  }
  requests.declare([
    ...byUpstream.map((code) => [method, code, 'upstream', ...further]),
    ...byGateway.map((code) => [method, code, 'gateway', ...further]),
  ])
}
