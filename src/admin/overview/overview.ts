import type { LogEvent } from '../../observe/log.ts'
import type { CallCounts, Status } from '../../observe/status.ts'
import type { Limit } from '../../policy/limit.ts'
import { planOf } from '../../policy/plans.ts'
import type { ListedOverride } from '../../policy/overrides.ts'
import { quotaOf, upcomingChanges } from '../../policy/rule.ts'
import { instant } from '../../runtime/instant.ts'
import { sum } from '../../runtime/merge.ts'
import { VERSION } from '../../runtime/package.ts'
import { type ActivityValues, type CallerActivity, type LimitActivity, RECENT_SECONDS } from './activity.ts'
import { MAX_CALLERS } from './caller-table.ts'
import { createGateways, type ShownSummary } from './gateways.ts'
import { type LastMinute, showMinute } from './last-minute.ts'
import type { ConfigurationInForce, OverviewSource, ReloadRecord } from './source.ts'

/** The body of `/overview`, which the console and `sluice limits top` show. Instants are ISO 8601 in UTC. */
export interface Overview {
  readonly version: string
  readonly at: string
  /** This gateway and the others that count in the same Redis, by host and process. */
  readonly gateways: readonly ShownSummary[]
  /** When Redis last returned the others; null if it has not. */
  readonly gatewaysReadAt: string | null
  /** Why the gateway should get no requests; null if it should. */
  readonly notReady: string | null
  readonly activity: OverviewActivity
  /** The limits of the configuration. */
  readonly limits: readonly ReturnType<typeof limitOf>[]
  readonly overrides: { readonly total: number; readonly first: readonly ListedOverride[] }
  /** The place where calls are counted. */
  readonly counts: 'memory' | 'Redis'
  readonly status: Omit<Status, 'calls'>
  readonly lastMinute: LastMinute
  /** The latest first. */
  readonly events: readonly LogEvent[]
  readonly reloads: readonly ReloadRecord[]
  /** The mistakes of teams' files that are left out, one per line. */
  readonly leftOut: readonly string[]
  /** When the configuration in force was kept; null unless it is that of `configuration.keep`. */
  readonly keptAt: string | null
}

interface OverviewActivity extends CallCounts, ActivityValues {
  /** The end of the last second of the series. Those of workers differ by less than a second. */
  readonly until: string
  /** Maximum of `known`. */
  readonly mostKnown: number
  /** Sorted: those with the most refusals first, then those that have used most of a limit. */
  readonly callers: readonly ReturnType<typeof callerOf>[]
}

const MAX_EVENTS = 50
const MAX_OVERRIDES = 100

/** Creates the content of the console. `source` throws until the gateway has started. */
export function createOverview(configuration: ConfigurationInForce, source: () => OverviewSource) {
  const gateways = createGateways(configuration, source)

  return {
    close: gateways.close,
    /** Returns the current content; rejects until the gateway has started. */
    async read(): Promise<Overview> {
      const gateway = source()
      const until = instant(Date.now() - (performance.now() % 1000))
      const [notReady, activityNow, statusNow, minute, listed, logged] = await Promise.all([
        gateway.notReadyReason(),
        gateway.activity(),
        gateway.status(),
        gateway.lastMinute(),
        // Rejects while no worker serves.
        gateway.overrides().catch(() => []),
        gateway.events(),
      ])
      const { calls, ...status } = statusNow
      const { clients, limits, plans, store } = configuration.config()
      const keptAt = configuration.keptAt()
      const ids = new Set(activityNow.callers.map(({ client }) => client))
      const shown = clients.filter(({ caller }) => ids.has(caller))
      const names = new Map(shown.map(({ caller, name }) => [caller, name]))
      return {
        version: VERSION,
        at: new Date().toISOString(),
        ...gateways.read(statusNow),
        notReady: notReady ?? null,
        activity: {
          ...calls,
          ...activityNow,
          until,
          mostKnown: MAX_CALLERS,
          callers: activityNow.callers
            .map((caller) => ({
              ...callerOf(caller, names.get(caller.client ?? '')),
              /** The plan of a client; null if it has none. */
              plan:
                planOf(plans, { client: caller.client ?? undefined, plan: caller.plan ?? undefined }) ?? null,
            }))
            .toSorted((a, b) => b.refusals - a.refusals || b.part - a.part),
        },
        limits: limits.map((limit) => limitOf(limit, Date.now())),
        overrides: { total: listed.length, first: listed.slice(0, MAX_OVERRIDES) },
        counts: store === 'memory' ? 'memory' : 'Redis',
        status,
        lastMinute: showMinute(minute),
        events: logged.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, MAX_EVENTS),
        reloads: configuration.reloads,
        leftOut: configuration.leftOut(),
        keptAt: keptAt === null ? null : instant(keptAt),
      }
    },
  }
}

/** Adds to a caller its name, its rates, and the limit that it has used most, rather one with a single counter. */
function callerOf(caller: CallerActivity, name: string | null = null) {
  const live = caller.limits.filter(({ shadow }) => !shadow)
  const sorted = live.toSorted((a, b) => partUsed(b) - partUsed(a))
  const mostUsed = sorted.find(({ isAlone }) => isAlone) ?? sorted[0]
  const most = live.find(({ name }) => name === caller.refusedNow?.limit) ?? mostUsed ?? null
  return {
    ...caller,
    /** That of a listed client; null if it has none. */
    name,
    /** Means of the last ten seconds. */
    callsPerSecond: sum(caller.calls.slice(-RECENT_SECONDS)) / RECENT_SECONDS,
    refusedPerSecond: sum(caller.refused.slice(-RECENT_SECONDS)) / RECENT_SECONDS,
    /** Refusals in the last minute. */
    refusals: sum(caller.refused),
    /** The live limit that refuses it now, or that it has used most, and the used part of that, from 0 to 1. */
    most,
    part: most === null ? 0 : partUsed(most),
  }
}

/** A limit that allows no calls is used up. */
function partUsed({ limit, remaining, part }: LimitActivity): number {
  const most = part ?? limit
  return most === 0 ? 1 : (most - remaining) / most
}

function limitOf(limit: Limit, nowMs: number) {
  const { name, per, shadow, windowMs, calendar, isConcurrent } = limit
  return {
    name,
    per,
    shadow,
    ...(calendar && { calendar }),
    /** Absent of calls at once. */
    ...(!isConcurrent && { windowSeconds: windowMs / 1000 }),
    /** The number in force for callers without a rule of their own. */
    limit: quotaOf(limit, '', nowMs).limit,
    changes: upcomingChanges(limit, nowMs),
  }
}
