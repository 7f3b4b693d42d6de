import { partCount } from '../../limit/key.ts'
import { CONCURRENT_WAIT_MS } from '../../limit/leases.ts'
import type { CountedCaller } from '../../policy/counted-caller.ts'
import { instant } from '../../runtime/instant.ts'
import { addUp, mergeLists, sum } from '../../runtime/merge.ts'
import type { CallerRow, LatestDecision } from './caller-table.ts'
import type { Activity } from './callers.ts'
import { inOrder, MAX_CALLERS, refusedForMs } from './caller-table.ts'
import { secondOf } from './ring.ts'

/** Seconds over which rates are averaged. */
export const RECENT_SECONDS = 10
const MAX_SHOWN = 100

/** The latest calls of callers, in a process or in all. */
export interface ActivityValues {
  /** The callers to show, busiest first. */
  readonly callers: readonly CallerActivity[]
  /** Tracked callers, shown or not; at `MAX_CALLERS`, there may be more. */
  readonly known: number
}

export type CallerActivity = Readonly<ReturnType<typeof callerValues>>
export type LimitActivity = Readonly<ReturnType<typeof limitValues>>

/** Returns what callers did lately in this process. */
export const activityOf = ({ rows }: Activity, at = performance.now()): ActivityValues =>
  busiest(rows().map((row) => callerValues(row, at)))

/** Returns what a caller of the last minute did, or one that is refused now. */
function callerValues(row: CallerRow, at: number) {
  const { shown, parts, calls, refused, limits, refusal, route, plan } = row
  const second = secondOf(at)
  const forMs = Math.ceil(refusedForMs(row, at))
  /** Null for a limit that allows no calls. */
  const until = refusal.limit === 0 ? null : instant(refusal.resetAt)
  return {
    /** The caller with secrets shortened, such as `client:acme`. */
    caller: shown,
    /** The id, if the caller is only a client. */
    client: parts.length === 1 && parts[0]!.word === 'client' ? parts[0]!.value : null,
    /** The plan that its token names; null if it names none. */
    plan: plan ?? null,
    /** The route of most of its calls. */
    route,
    /** Its calls of the last 60 seconds, and those of them that were refused. */
    calls: calls.before(second),
    refused: refused.before(second),
    limits: [...limits.values()].map((latest) => limitValues(parts, latest, at)),
    refusedNow: forMs === 0 ? null : { limit: refusal.name, until, forMs },
  }
}

/** Returns the latest decision of a limit for a caller. Instants are ISO 8601 in UTC. */
function limitValues(caller: CountedCaller, latest: LatestDecision, at: number) {
  const { name, key, limit, used, remaining, part, windowMs, resetAt, shadow, decidedAt, overs } = latest
  const ageMs = Math.max(0, Math.round(at - decidedAt))
  // After a window, all counted calls have left it. The end of calls in progress is unknown.
  const isPast = ageMs > (windowMs || CONCURRENT_WAIT_MS)
  const over = sum(overs?.before(secondOf(at)) ?? [])
  return {
    name,
    limit,
    used: isPast ? 0 : used,
    remaining: isPast ? (part ?? limit) : remaining,
    /** Calls of `limit` that the gateway may admit, if it decided without Redis; null if all. */
    part,
    ...(windowMs > 0 && { windowSeconds: windowMs / 1000 }),
    reset: instant(resetAt),
    shadow,
    /** False if the limit counts by other parts, too; these values are of the counter that was used last. */
    isAlone: partCount(key) === caller.length,
    /** Milliseconds since the decision. */
    ageMs,
    /** Calls of the last minute that it refused or, as a shadow limit, would have refused. */
    refused: shadow ? 0 : over,
    wouldRefuse: shadow ? over : 0,
  }
}

/**
 * Returns the callers to show, busiest first; without a call for a minute, only those refused now,
 * if there is room.
 */
function busiest(callers: readonly CallerActivity[]) {
  const active = callers
    .filter(({ refusedNow, calls }) => refusedNow !== null || sum(calls) > 0)
    .map((caller) => {
      const calls = sum(caller.calls)
      return { caller, calls, isRefused: caller.refusedNow !== null && calls > 0 }
    })
  const shown = inOrder(active, MAX_SHOWN).slice(0, MAX_SHOWN)
  return {
    callers: shown.toSorted((a, b) => b.calls - a.calls).map(({ caller }) => caller),
    known: Math.min(active.length, MAX_CALLERS),
  }
}

/** Merges the values of several processes: adds up calls, and keeps the latest decision of each limit. */
export function mergeActivity(all: readonly ActivityValues[]): ActivityValues {
  const { callers, known } = busiest(mergeLists(all, 'callers', ['caller'], mergeCaller))
  return { callers, known: Math.max(known, ...all.map((one) => one.known)) }
}

function mergeCaller(a: CallerActivity, b: CallerActivity): CallerActivity {
  return {
    ...a,
    calls: addUp([a.calls, b.calls]),
    refused: addUp([a.refused, b.refused]),
    limits: mergeLists([a, b], 'limits', ['name'], mergeLimit),
    refusedNow: (a.refusedNow?.forMs ?? 0) > (b.refusedNow?.forMs ?? 0) ? a.refusedNow : b.refusedNow,
  }
}

const mergeLimit = (a: LimitActivity, b: LimitActivity): LimitActivity => ({
  ...(a.ageMs < b.ageMs ? a : b),
  refused: a.refused + b.refused,
  wouldRefuse: a.wouldRefuse + b.wouldRefuse,
})
