import type { Config } from '../../config/schema.ts'
import { instant } from '../units.ts'
import { isReplayable } from './replayed-routes.ts'
import type { Tallies, Tally } from './tally.ts'

/** How many lines were read, and what became of them; these add up but for `late`. */
export interface LineCounts {
  /** Replayed: calls that a limit was asked about. */
  replayed: number
  /** Refused by the recorded gateway before any limit, such as with 401 or 404. */
  refusedBefore: number
  /** Taken by no route of this configuration, or by one without limits. */
  unmatched: number
  unlimited: number
  /** Without what a limit is counted by: the client, the address, or the whole path. */
  lacking: number
  /** No lines of the access log, and lines too long to be. */
  other: number
  overlong: number
}

/** Calls, and those of them that a limit admitted and refused. */
export interface Counts {
  readonly calls: number
  readonly admitted: number
  readonly refused: number
  /** What the recorded gateway did; it may have been unable to decide. */
  readonly recorded: { readonly admitted: number; readonly refused: number; readonly undecided: number }
  /** Refused in the replay and admitted in the record, and the other way round. */
  readonly newlyRefused: number
  readonly newlyAdmitted: number
}

/** What became of one client's calls. Objects name limits, each that refused, or, of shadow limits, would have. */
export interface ClientReport extends Counts {
  /** Null for the calls that nobody must prove. */
  readonly client: string | null
  readonly name?: string
  readonly refusedBy: Readonly<Record<string, number>>
  readonly shadowOver: Readonly<Record<string, number>>
  /** The most calls within one minute, wherever it starts, and when the first of them came. */
  readonly busiestMinute: { readonly calls: number; readonly from: string }
}

export interface LimitReport {
  readonly name: string
  readonly shadow: boolean
  /** False where the access log does not tell what it is counted by. */
  readonly replayed: boolean
  /** Calls refused by it, or, in shadow, that would have been; and how many clients made them. */
  readonly refused: number
  readonly clients: number
  /** Calls that the recorded gateway refused by a limit of this name. */
  readonly recordedRefused: number
}

/** What other limits would have done. Instants are ISO 8601 in UTC. */
export interface Report {
  readonly config: string
  /** The first and the last call that was replayed; null where none was. */
  readonly from: string | null
  readonly to: string | null
  readonly lines: Readonly<LineCounts>
  /** Calls whose lines came too late to be put in order, and by how many milliseconds at most. */
  readonly late: { readonly calls: number; readonly byMs: number }
  readonly totals: Counts & { readonly clients: number }
  readonly limits: readonly LimitReport[]
  /** Those with the most refused first. */
  readonly clients: readonly ClientReport[]
  /** Clients that are not listed. */
  readonly more: number
}

export interface Replayed {
  readonly tallies: Tallies
  readonly lines: Readonly<LineCounts>
  readonly late: Report['late']
}

/** Sums up a replay, with the first `top` clients. */
export function reportOf(
  { tallies, lines, late }: Replayed,
  { limits, clients }: Pick<Config, 'limits' | 'clients'>,
  file: string,
  top: number,
): Report {
  const names = new Map(clients.map(({ caller, name }) => [caller, name]))
  const sorted = [...tallies.all.values()].toSorted(byRefused)
  const span = tallies.span()
  return {
    config: file,
    from: span === undefined ? null : instant(span.fromMs),
    to: span === undefined ? null : instant(span.toMs),
    lines,
    late,
    totals: { clients: sorted.length, ...countsOf(sumOf(sorted)) },
    limits: limits.map((limit, place) => {
      const { name, shadow } = limit
      const refusing = sorted.map((tally) => (shadow ? tally.shadowOver : tally.refusedBy)?.[place] ?? 0)
      return {
        name,
        shadow,
        replayed: isReplayable(limit),
        refused: refusing.reduce((sum, calls) => sum + calls, 0),
        clients: refusing.filter((calls) => calls > 0).length,
        recordedRefused: tallies.recordedBy[place]!,
      }
    }),
    clients: sorted.slice(0, top).map((tally) => {
      const { client = null, refusedBy, shadowOver, busiest } = tally
      const name = names.get(client ?? '')
      return {
        client,
        ...(name !== undefined && { name }),
        ...countsOf(tally),
        refusedBy: byName(refusedBy, limits),
        shadowOver: byName(shadowOver, limits),
        busiestMinute: { calls: busiest.calls, from: instant(busiest.fromMs) },
      }
    }),
    more: Math.max(0, sorted.length - top),
  }
}

function byName(
  counts: readonly number[] | undefined,
  limits: readonly { readonly name: string }[],
): Record<string, number> {
  return Object.fromEntries(
    limits.flatMap(({ name }, place) => (counts?.[place] ? [[name, counts[place]]] : [])),
  )
}

type Summed = Pick<Tally, (typeof SUMMED)[number]>
const SUMMED = [
  'calls',
  'admitted',
  'refused',
  'recordedAdmitted',
  'recordedRefused',
  'newlyRefused',
  'newlyAdmitted',
] as const

function sumOf(tallies: readonly Tally[]): Summed {
  const sum = Object.fromEntries(SUMMED.map((key) => [key, 0])) as Record<keyof Summed, number>
  for (const tally of tallies) for (const key of SUMMED) sum[key] += tally[key]
  return sum
}

function countsOf(summed: Summed): Counts {
  const { calls, admitted, refused, recordedAdmitted, recordedRefused, newlyRefused, newlyAdmitted } = summed
  return {
    calls,
    admitted,
    refused,
    recorded: {
      admitted: recordedAdmitted,
      refused: recordedRefused,
      undecided: calls - recordedAdmitted - recordedRefused,
    },
    newlyRefused,
    newlyAdmitted,
  }
}

function byRefused(a: Tally, b: Tally): number {
  return (
    b.refused - a.refused ||
    b.newlyAdmitted - a.newlyAdmitted ||
    b.calls - a.calls ||
    ((a.client ?? '') < (b.client ?? '') ? -1 : 1)
  )
}
