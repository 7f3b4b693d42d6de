import type { Decision } from '../../limit/decision.ts'
import type { LoggedCall } from './logged-call.ts'
import { type Busiest, createBusiest } from './busiest.ts'

/** What became of one client's calls, as recorded and as replayed. Lists are by the limit's place in the configuration. */
export interface Tally {
  readonly client: string | undefined
  calls: number
  admitted: number
  refused: number
  recordedAdmitted: number
  recordedRefused: number
  /** Refused in the replay and admitted in the record, and the other way round. */
  newlyRefused: number
  newlyAdmitted: number
  /** By the limit that the 429 would name; undefined while there is none. */
  refusedBy: number[] | undefined
  /** By each shadow limit that had no room. */
  shadowOver: number[] | undefined
  readonly busiest: Busiest
}

/** Tallies of clients. */
export interface Tallies {
  readonly all: ReadonlyMap<string | undefined, Tally>
  /** The instants of the first and the last call; undefined before any. */
  span(): { readonly fromMs: number; readonly toMs: number } | undefined
  /** Of each limit, how many calls the recorded gateway refused by one of that name. */
  readonly recordedBy: readonly number[]
  note(call: LoggedCall, decision: Decision, nowMs: number): void
}

/** Counts per client, of one alone where `only` names it; `names` are those of the limits. */
export function createTallies(names: readonly string[], only: string | undefined): Tallies {
  const all = new Map<string | undefined, Tally>()
  const places = new Map(names.map((name, place) => [name, place]))
  const recordedBy = names.map(() => 0)
  const noteCall = createBusiest()
  let span: { fromMs: number; toMs: number } | undefined

  const counted = (counts: number[] | undefined, name: string): number[] => {
    const some = counts ?? names.map(() => 0)
    some[places.get(name)!]!++
    return some
  }

  return {
    all,
    recordedBy,
    span: () => span,
    note(call, decision, nowMs) {
      const { client } = call
      if (only !== undefined && client !== only) return
      let tally = all.get(client)
      if (tally === undefined) all.set(client, (tally = emptyTally(client)))
      tally.calls++
      if (call.decision === 'admitted') tally.recordedAdmitted++
      else if (call.decision === 'refused') {
        tally.recordedRefused++
        const place = places.get(call.limit ?? '')
        if (place !== undefined) recordedBy[place]!++
      }
      if (decision.refusedBy === undefined) {
        tally.admitted++
        if (call.decision === 'refused') tally.newlyAdmitted++
        for (const { name, shadow, admitted } of decision.allowances) {
          if (shadow && !admitted) tally.shadowOver = counted(tally.shadowOver, name)
        }
      } else {
        tally.refused++
        if (call.decision === 'admitted') tally.newlyRefused++
        tally.refusedBy = counted(tally.refusedBy, decision.refusedBy.name)
      }
      noteCall(client, nowMs, tally.busiest)
      if (span === undefined) span = { fromMs: nowMs, toMs: nowMs }
      else span.toMs = nowMs
    },
  }
}

function emptyTally(client: string | undefined): Tally {
  return {
    client,
    calls: 0,
    admitted: 0,
    refused: 0,
    recordedAdmitted: 0,
    recordedRefused: 0,
    newlyRefused: 0,
    newlyAdmitted: 0,
    refusedBy: undefined,
    shadowOver: undefined,
    busiest: { calls: 0, fromMs: 0 },
  }
}
