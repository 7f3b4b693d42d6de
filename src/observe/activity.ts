import type { Exchange } from '../gateway/exchange.ts'
import { CONCURRENT_WAIT_MS } from '../limit/leases.ts'
import { instant } from '../runtime/instant.ts'
import { partsOf } from '../limit/key.ts'
import type { CountedCaller } from '../policy/counted.ts'
import type { CallerRow, LatestDecision } from './callers.ts'
import { createCallers, createRing, inOrder, MAX_CALLERS, refusedForMs, secondOf, sum } from './callers.ts'
import { RECENT_SECONDS } from './summary.ts'

const TOTAL_SECONDS = 300
const MAX_SHOWN = 100

export type Activity = ReturnType<typeof createActivity>
export type LimitActivity = Readonly<ReturnType<typeof limitValues>>
export type CallerActivity = Readonly<ReturnType<typeof callerValues>>

export type ActivityValues = Readonly<ReturnType<Activity['values']>>

/** Tracks what all callers and the busiest callers do. `now` is in milliseconds, like `performance.now`. */
export function createActivity(now = () => performance.now()) {
  const callers = createCallers()
  const requests = createRing(TOTAL_SECONDS)
  const refused = createRing(TOTAL_SECONDS)
  const failed = createRing(TOTAL_SECONDS)

  return {
    count(exchange: Exchange, status: number): void {
      const second = secondOf(exchange.endedAt)
      requests.add(second)
      if (exchange.decision?.admitted === false) refused.add(second)
      else if (status >= 500) failed.add(second)
      callers.count(exchange)
    },
    forget: callers.forget,
    find: callers.find,
    /** Returns the requests of all callers in the last `RECENT_SECONDS`. */
    recent() {
      const second = secondOf(now())
      const countOf = (ring: typeof requests) => sum(ring.before(second).slice(-RECENT_SECONDS))
      return { requests: countOf(requests), refused: countOf(refused), failed: countOf(failed) }
    },
    /**
     * Returns the requests of all callers in each of the last 300 seconds, oldest first, and the
     * busiest callers, busiest first.
     */
    values() {
      const at = now()
      const second = secondOf(at)
      return {
        requests: requests.before(second),
        refused: refused.before(second),
        /** Responses with a status of 500 or above. */
        failed: failed.before(second),
        ...busiest(callers.rows().map((row) => callerValues(row, at))),
      }
    },
  }
}

/** Returns the calls of a caller in each of the last 60 seconds, oldest first, its limits, and its current refusal. */
function callerValues(row: CallerRow, at: number) {
  const { shown, parts, calls, refused, limits, refusal, route } = row
  const second = secondOf(at)
  const forMs = Math.ceil(refusedForMs(row, at))
  return {
    /** The caller with secrets shortened, such as `client:acme`. */
    caller: shown,
    /** The id, if the caller is only a client. */
    client: parts.length === 1 && parts[0]!.word === 'client' ? parts[0]!.value : null,
    /** The route of most of its calls. */
    route,
    calls: calls.before(second),
    refused: refused.before(second),
    limits: [...limits.values()].map((latest) => limitValues(parts, latest, at)),
    refusedNow: forMs === 0 ? null : refusalValues(refusal, forMs),
  }
}

const refusalValues = ({ name, limit, resetAt }: CallerRow['refusal'], forMs: number) => ({
  limit: name,
  /** Null for a limit that allows no calls. */
  until: limit === 0 ? null : instant(resetAt),
  forMs,
})

/** Returns the latest allowance of a limit for a caller. Instants are ISO 8601 in UTC. */
function limitValues(caller: CountedCaller, latest: LatestDecision, at: number) {
  const { name, key, limit, remaining, windowMs, resetAt, shadow, decidedAt, overs } = latest
  const ageMs = Math.max(0, Math.round(at - decidedAt))
  const over = sum(overs?.before(secondOf(at)) ?? [])
  return {
    name,
    limit,
    // After a window, all counted calls have left it. The end of calls in progress is unknown.
    remaining: ageMs > (windowMs || CONCURRENT_WAIT_MS) ? limit : remaining,
    ...(windowMs > 0 && { windowSeconds: windowMs / 1000 }),
    reset: instant(resetAt),
    shadow,
    /** False if the limit counts by other parts, too; these values are of the counter that was used last. */
    isAlone: partsOf(key) === caller.length,
    ageMs,
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
    /** Tracked callers, shown or not; at `MAX_CALLERS`, there may be more. */
    known: Math.min(active.length, MAX_CALLERS),
  }
}

/**
 * Adds to a caller its name, its refusals in the last minute, and the live limit that refuses it,
 * or that it has used most (0 to 1), rather one with a single counter.
 */
export function withMostUsed(caller: CallerActivity, name: string | undefined) {
  const live = caller.limits.filter(({ shadow }) => !shadow)
  const sorted = live.toSorted((a, b) => partUsed(b) - partUsed(a))
  const mostUsed = sorted.find(({ isAlone }) => isAlone) ?? sorted[0]
  const most = live.find(({ name }) => name === caller.refusedNow?.limit) ?? mostUsed
  const part = most === undefined ? 0 : partUsed(most)
  return { ...caller, name: name ?? null, refusals: sum(caller.refused), most: most ?? null, part }
}

/** A limit that allows no calls is used up. */
const partUsed = ({ limit, remaining }: LimitActivity): number =>
  limit === 0 ? 1 : (limit - remaining) / limit

/** Merges the values of several processes: adds up counts, and keeps the latest decision of each limit. */
export function mergeActivity(all: readonly ActivityValues[]): ActivityValues {
  const callers = new Map<string, CallerActivity>()
  for (const values of all.flatMap(({ callers }) => callers)) {
    const other = callers.get(values.caller)
    callers.set(values.caller, other === undefined ? values : mergeCaller(other, values))
  }
  const { callers: shown, known } = busiest([...callers.values()])
  return {
    requests: addUp(all.map(({ requests }) => requests)),
    refused: addUp(all.map(({ refused }) => refused)),
    failed: addUp(all.map(({ failed }) => failed)),
    callers: shown,
    known: Math.max(known, ...all.map((values) => values.known)),
  }
}

function mergeCaller(a: CallerActivity, b: CallerActivity): CallerActivity {
  const limits = new Map(a.limits.map((limit) => [limit.name, limit]))
  for (const other of b.limits) {
    const mine = limits.get(other.name)
    const latest = mine !== undefined && mine.ageMs < other.ageMs ? mine : other
    const refused = other.refused + (mine?.refused ?? 0)
    const wouldRefuse = other.wouldRefuse + (mine?.wouldRefuse ?? 0)
    limits.set(other.name, { ...latest, refused, wouldRefuse })
  }
  return {
    ...a,
    calls: addUp([a.calls, b.calls]),
    refused: addUp([a.refused, b.refused]),
    limits: [...limits.values()],
    refusedNow: (a.refusedNow?.forMs ?? 0) > (b.refusedNow?.forMs ?? 0) ? a.refusedNow : b.refusedNow,
  }
}

/** Adds up lists of equal length, index by index; some may be empty. */
function addUp(lists: readonly (readonly number[])[]): readonly number[] {
  const sums: number[] = []
  for (const list of lists) for (const [i, value] of list.entries()) sums[i] = (sums[i] ?? 0) + value
  return sums
}
