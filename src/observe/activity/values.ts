import { instant } from '../../limit/instant.ts'
import { encodePart } from '../../limit/key.ts'
import type { Entry, LatestAllowance, Refusal } from './sketch.ts'

const MAX_SHOWN = 100

export type LimitActivity = Readonly<ReturnType<typeof limitValues>>
export type CallerActivity = Readonly<ReturnType<typeof callerValues>>

/** The requests of all callers in each of the last 300 seconds, oldest first, and the busiest callers, busiest first. */
export interface ActivityValues {
  readonly requests: readonly number[]
  readonly refused: readonly number[]
  /** Responses with a status of 500 or above. */
  readonly failed: readonly number[]
  readonly clients: readonly CallerActivity[]
  /** Tracked callers of the last minute, shown or not; at `MAX_CALLERS`, there may be more. */
  readonly known: number
}

export const NO_ACTIVITY: ActivityValues = { requests: [], refused: [], failed: [], clients: [], known: 0 }

/** Returns the calls of a caller in each of the last 60 seconds, oldest first, its limits, and its current refusal. */
export function callerValues({ kind, name, calls, refused, limits, refusal }: Entry, at: number) {
  const second = Math.floor(at / 1000)
  return {
    kind,
    /** The client id, or the address with its colons, which the keys of limits do not have. */
    client:
      kind === 'address' && name.endsWith('/64') ? `${name.slice(0, -3).replaceAll('-', ':')}::/64` : name,
    calls: calls.before(second),
    refused: refused.before(second),
    limits: limits.map((latest) => limitValues(name, latest, at)) as readonly LimitActivity[],
    refusedNow: refusal === undefined || refusal.endsAt <= at ? null : refusalValues(refusal, at),
  }
}

const refusalValues = ({ allowance: { name, limit, resetAt }, endsAt }: Refusal, at: number) => ({
  limit: name,
  /** Null for a limit that allows no calls. */
  until: limit === 0 ? null : instant(resetAt),
  forMs: Math.ceil(endsAt - at),
})

/** Returns the latest allowance of a limit for a caller. Instants are ISO 8601 in UTC. */
function limitValues(caller: string, latest: LatestAllowance, at: number) {
  const { name, limit, remaining, windowMs, resetAt, shadow, key, decidedAt, overs } = latest
  const ageMs = Math.max(0, Math.round(at - decidedAt))
  const over = sum(overs?.before(Math.floor(at / 1000)) ?? [])
  return {
    name,
    limit,
    // After a window, all counted calls have left it.
    remaining: ageMs > windowMs ? limit : remaining,
    windowSeconds: windowMs / 1000,
    reset: instant(resetAt),
    shadow,
    /** False if the limit has several counters for the client; these values are of the one that was used last. */
    perClient: key.endsWith(`{${encodePart(caller)}}:${name}`),
    ageMs,
    refused: shadow ? 0 : over,
    wouldRefuse: shadow ? over : 0,
  }
}

/** Returns the callers to show, busiest first, preferably those refused now; none without a call for a minute. */
export function busiest(callers: readonly CallerActivity[]): Pick<ActivityValues, 'clients' | 'known'> {
  const active = callers
    .map((caller) => ({ caller, calls: sum(caller.calls), isRefused: caller.refusedNow !== null }))
    .filter(({ calls, isRefused }) => calls > 0 || isRefused)
    .toSorted((a, b) => b.calls - a.calls)
  const refusedFirst = active.toSorted((a, b) => Number(b.isRefused) - Number(a.isRefused))
  const shown = new Set(refusedFirst.slice(0, MAX_SHOWN))
  return {
    clients: active.filter((item) => shown.has(item)).map(({ caller }) => caller),
    known: active.length,
  }
}

/**
 * Adds to a caller its name, its refusals in the last minute, the live limit that it has used most, and the used part, from 0 to 1.
 * Limits with one counter per client precede the others.
 */
export function withMostUsed(caller: CallerActivity, name: string | undefined) {
  const live = caller.limits.filter(({ shadow }) => !shadow)
  const single = live.filter(({ perClient }) => perClient)
  const [most] = (single.length > 0 ? single : live).toSorted((a, b) => partUsed(b) - partUsed(a))
  const part = most === undefined ? 0 : partUsed(most)
  return { ...caller, name: name ?? null, refusals: sum(caller.refused), most: most ?? null, part }
}

/** A limit that allows no calls is used up. */
const partUsed = ({ limit, remaining }: LimitActivity): number =>
  limit === 0 ? 1 : (limit - remaining) / limit

/** Merges the values of several processes: adds up counts, and keeps the latest decision of each limit. */
export function mergeActivity(all: readonly ActivityValues[]): ActivityValues {
  const callers = new Map<string, CallerActivity>()
  for (const caller of all.flatMap(({ clients }) => clients)) {
    const id = `${caller.kind} ${caller.client}`
    const other = callers.get(id)
    callers.set(id, other === undefined ? caller : mergeCaller(other, caller))
  }
  const { clients, known } = busiest([...callers.values()])
  return {
    requests: addUp(all.map(({ requests }) => requests)),
    refused: addUp(all.map(({ refused }) => refused)),
    failed: addUp(all.map(({ failed }) => failed)),
    clients,
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

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
