import type { Config } from '../../config/config.ts'
import { acceptsTokens } from '../../downstream/router.ts'
import { type OutageMode, strictestMode } from '../../limit/quota.ts'
import { isPerClient } from '../../policy/key.ts'
import type { Limit } from '../../policy/limit.ts'
import { needsStore } from '../../policy/without-store.ts'
import { formatList } from '../format.ts'

type Route = Config['routes'][number]

const namesOf = (limits: readonly Limit[]): string => formatList(limits.map(({ name }) => name))

/** Describes what a call of a route gets without Redis; `all` are the limits of the file. */
export function describeRoute(route: Route, all: readonly Limit[], onOutage: OutageMode): string {
  const { limits, respond } = route
  if (respond === 'health') return 'answers as /readyz does'
  if (respond === 'limits') return describeShown(all, onOutage)
  if (limits.length === 0) {
    const isProofRefused = onOutage === 'deny' && acceptsTokens(route)
    return `passes: it has no limit${isProofRefused ? '; a call with a DPoP proof gets a 503' : ''}`
  }
  const live = limits.filter(({ shadow }) => !shadow)
  const under = (mode: OutageMode) => live.filter((limit) => strictestMode([limit], onOutage) === mode)
  const [denying, local] = [under('deny'), under('local')]
  if (needsStore(route, onOutage)) return `503 for every call, by ${namesOf(denying)}`
  const others = local.length === 0 ? 'passes uncounted' : `each gateway counts ${namesOf(local)}`
  if (denying.length === 0) return others
  return `503 for calls to which ${namesOf(denying)} applies; other calls: ${others}`
}

/** Describes the answer of `respond: limits`. */
function describeShown(all: readonly Limit[], onOutage: OutageMode): string {
  const shown = all.filter((limit) => isPerClient(limit) && !limit.shadow)
  if (shown.some((limit) => strictestMode([limit], onOutage) === 'deny'))
    return '503: its limits cannot be read'
  return 'shows the calls that the gateway knows of'
}
