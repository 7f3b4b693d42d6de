import type { Config, SharedStore } from '../../config/config.ts'
import { acceptsTokens } from '../../downstream/router.ts'
import { boundsOf, type OutageBounds, type Sharing } from '../../limit/fallback/part.ts'
import type { OutageMode } from '../../limit/quota.ts'
import type { Limit } from '../../policy/limit.ts'
import { quotaOf } from '../../policy/rule.ts'
import { everyRouteNeedsStore } from '../../policy/without-store.ts'
import { describeLimit, type LimitSentences } from './limit-sentences.ts'
import { describeRoute } from './route-sentences.ts'

/** The responses that callers get while Redis is out of reach, in sentences and numbers. */
export interface OutageReport {
  readonly gateways: number
  /** Percent; null without `store.part`. */
  readonly part: number | null
  readonly onOutage: OutageMode
  readonly summary: readonly string[]
  readonly routes: readonly { readonly match: string; readonly says: string }[]
  readonly limits: readonly LimitReport[]
  readonly notes: readonly string[]
}

interface LimitReport extends LimitSentences {
  readonly name: string
  readonly limit: number
  readonly mode: OutageMode
  /** Calls that the gateways may admit by themselves, under `local`. */
  readonly bounds: OutageBounds
}

/** Describes an outage with `gateways` gateways, at an instant (epoch milliseconds). */
export function describeOutage(
  config: Config,
  store: SharedStore,
  gateways: number,
  nowMs: number,
): OutageReport {
  const { onOutage, instances, part } = store
  const sharing = { gateways, instances, percent: part }
  return {
    gateways,
    part: part ?? null,
    onOutage,
    summary: summaryOf(config, store, sharing),
    routes: config.routes
      .filter(({ respond }) => respond !== 'resource')
      .map((route) => ({ match: route.match, says: describeRoute(route, config.limits, onOutage) })),
    limits: config.limits.map((limit) => reportOf(config, limit, onOutage, sharing, nowMs)),
    notes: notesOn(config, onOutage, sharing),
  }
}

function reportOf(
  config: Config,
  limit: Limit,
  onOutage: OutageMode,
  sharing: Sharing,
  nowMs: number,
): LimitReport {
  const { limit: calls } = quotaOf(limit, '', nowMs)
  const costs = config.routes.flatMap(({ limits }) =>
    limits.filter(({ name }) => name === limit.name).map(({ cost = 1 }) => cost),
  )
  const cost = Math.max(1, ...costs)
  const bounds = boundsOf(calls, cost, sharing)
  const mode = limit.onOutage ?? onOutage
  const others = [...config.clientLimits.values()].filter((own) => own.has(limit.name)).length
  const sentences = describeLimit({ limit, calls, cost, mode, bounds, sharing, others })
  return { name: limit.name, limit: calls, mode, bounds, ...sentences }
}

function summaryOf(config: Config, store: SharedStore, { gateways }: Sharing): readonly string[] {
  const { onOutage, part, instances } = store
  const least = part === undefined ? 'store.part is not set' : `store.part is ${part}%`
  const lines = [
    `While Redis is out of reach, with ${gateways === 1 ? 'one gateway' : `${gateways} gateways`}: store.onOutage is ${onOutage}, ${least}.`,
  ]
  if (instances !== undefined && instances !== gateways)
    lines.push(
      `store.instances is ${instances}, by which the limits are divided: ${gateways} gateways is another number.`,
    )
  const isUnready = everyRouteNeedsStore(config.routes, store)
  lines.push(
    isUnready
      ? '/readyz returns 503: every route has a limit under onOutage: deny.'
      : '/readyz does not fail: a route can do without Redis.',
  )
  return lines
}

/** Returns what holds for all limits. */
function notesOn({ routes }: Config, onOutage: OutageMode, sharing: Sharing): readonly string[] {
  const { gateways, instances } = sharing
  const notes = ['A gateway is one process: a machine with --workers 4 is four gateways.']
  if (routes.some(acceptsTokens)) notes.push(proofNote(onOutage, gateways))
  if (instances === undefined)
    notes.push(
      'A gateway that starts in the outage counts no other one: do not scale up or replace gateways.',
    )
  return notes
}

function proofNote(onOutage: OutageMode, gateways: number): string {
  if (onOutage === 'deny')
    return 'A call with a DPoP proof gets a 503, unless its limits have another onOutage.'
  if (gateways === 1) return 'A DPoP proof that the gateway remembers passes once, also under allow.'
  return `A DPoP proof passes once at each gateway while it is valid, so up to ${gateways} times, also under allow.`
}
