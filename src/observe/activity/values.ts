/** What a limit last said to a client. Instants are ISO 8601 in UTC. */
export interface LimitActivity {
  readonly name: string
  readonly limit: number
  readonly remaining: number
  readonly windowSeconds: number
  /** When `remaining` next grows. */
  readonly reset: string
  readonly shadow: boolean
  /** False if the client has several counters of this limit; then this is the one that it used last. */
  readonly perClient: boolean
  /** Milliseconds since the decision. */
  readonly ageMs: number
  /** Calls of the last minute that it refused. */
  readonly refused: number
  /** Calls of the last minute that this shadow limit would have refused. */
  readonly wouldRefuse: number
}

/** Until when a client is refused, by the limit with the longest wait. */
export interface RefusedNow {
  readonly limit: string
  /** Null for a limit that allows no calls. */
  readonly until: string | null
  readonly forMs: number
}

/** A caller without a client is known by its address alone: IPv6 by its /64. */
export type CallerKind = 'client' | 'address'

/** What one caller did in each of the last 60 seconds, oldest first. */
export interface CallerActivity {
  readonly kind: CallerKind
  /** The id of the client, or the address. */
  readonly client: string
  readonly calls: readonly number[]
  readonly refused: readonly number[]
  readonly limits: readonly LimitActivity[]
  readonly refusedNow: RefusedNow | null
}

/** What all callers did in each of the last 300 seconds, oldest first; and the busiest callers, busiest first. */
export interface ActivityValues {
  readonly requests: readonly number[]
  readonly refused: readonly number[]
  /** With a status of 500 or above. */
  readonly failed: readonly number[]
  readonly clients: readonly CallerActivity[]
  /** Callers of the last minute that are known, shown or not; at `MAX_CALLERS`, there may be more. */
  readonly known: number
}

export const NO_ACTIVITY: ActivityValues = { requests: [], refused: [], failed: [], clients: [], known: 0 }

/** More than are shown, so that one of the busiest is not the one that is replaced. */
export const MAX_CALLERS = 256
const MAX_SHOWN = 100

/** Returns the callers that are shown: those refused now and the busiest, busiest first; none that did nothing for a minute. */
export function busiest(callers: readonly CallerActivity[]): Pick<ActivityValues, 'clients' | 'known'> {
  const active = callers
    .map((caller) => ({ caller, calls: sum(caller.calls) }))
    .filter(({ caller, calls }) => calls > 0 || caller.refusedNow !== null)
    .toSorted((a, b) => b.calls - a.calls)
  const isRefused = ({ caller }: (typeof active)[number]): boolean => caller.refusedNow !== null
  const first = new Set([...active.filter(isRefused), ...active])
  const shown = new Set([...first].slice(0, MAX_SHOWN))
  return { clients: active.filter((one) => shown.has(one)).map(({ caller }) => caller), known: active.length }
}

/** Returns what several processes have seen as one: counts are added, and of a limit the latest decision is taken. */
export function mergeActivity(all: readonly ActivityValues[]): ActivityValues {
  const callers = new Map<string, CallerActivity>()
  for (const one of all.flatMap((values) => values.clients)) {
    const name = `${one.kind} ${one.client}`
    const before = callers.get(name)
    callers.set(name, before === undefined ? one : mergeCaller(before, one))
  }
  const { clients, known } = busiest([...callers.values()])
  return {
    requests: added(all.map(({ requests }) => requests)),
    refused: added(all.map(({ refused }) => refused)),
    failed: added(all.map(({ failed }) => failed)),
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
    calls: added([a.calls, b.calls]),
    refused: added([a.refused, b.refused]),
    limits: [...limits.values()],
    refusedNow: (a.refusedNow?.forMs ?? 0) > (b.refusedNow?.forMs ?? 0) ? a.refusedNow : b.refusedNow,
  }
}

/** Adds up lists, number by number; all but empty ones are as long. */
function added(lists: readonly (readonly number[])[]): readonly number[] {
  const sums: number[] = []
  for (const list of lists) for (const [i, value] of list.entries()) sums[i] = (sums[i] ?? 0) + value
  return sums
}

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
