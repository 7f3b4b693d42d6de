import { instant } from './instant.ts'
import type { Change, ClientLimit, Limit } from './limit.ts'
import { isOverridable, isActive, type Override } from './overrides.ts'

/** A limit, and what may beat it for one client. */
export interface Rules {
  readonly limit: Limit
  readonly own: ClientLimit | undefined
  readonly set: Override | undefined
}

/**
 * Returns what sets the number of calls at an instant (epoch milliseconds): the override if it has not ended, else the client's
 * own limit that has not, else the latest change in force, else the limit itself.
 */
export function inForce(
  limit: Limit,
  own: ClientLimit | undefined,
  set: Override | undefined,
  nowMs: number,
): Override | ClientLimit | Change | Limit {
  if (set !== undefined && isActive(set, nowMs) && isOverridable(limit)) return set
  if (own !== undefined && isActive(own, nowMs)) return own
  const { changes } = limit
  for (let i = changes.length - 1; i >= 0; i--) if (changes[i]!.fromAt <= nowMs) return changes[i]!
  return limit
}

/** Returns the window at an instant, in milliseconds: an override leaves it as it is. */
export function windowInForce(limit: Limit, own: ClientLimit | undefined, nowMs: number): number {
  return own?.windowMs !== undefined && isActive(own, nowMs) ? own.windowMs : limit.windowMs
}

/** What a limit will be: by a change, or since the client's own limit or override ends. Instants are ISO 8601 in UTC. */
export interface UpcomingChange {
  /** When it was announced; null where the file alone knows: the end of the client's own limit. */
  readonly announced: string | null
  readonly from: string
  readonly limit: number
  /** Only where the window changes, too. */
  readonly windowSeconds?: number
}

/** Returns what follows, in order. Changes that are never in force for this client are left out. */
export function comingOf({ limit, own, set }: Rules, nowMs: number): readonly UpcomingChange[] {
  const turns = [
    ...limit.changes.map(({ fromAt, announcedAt }) => ({ fromAt, announced: instant(announcedAt) })),
    ...(set?.untilAt === undefined ? [] : [{ fromAt: set.untilAt, announced: instant(set.setAt) }]),
    ...(own?.untilAt === undefined ? [] : [{ fromAt: own.untilAt, announced: null }]),
  ]
  let before = inForce(limit, own, set, nowMs).limit
  let windowMs = windowInForce(limit, own, nowMs)
  const upcomingChanges: UpcomingChange[] = []
  for (const { fromAt, announced } of turns.toSorted((a, b) => a.fromAt - b.fromAt)) {
    if (fromAt <= nowMs) continue
    const next = inForce(limit, own, set, fromAt).limit
    const nextMs = windowInForce(limit, own, fromAt)
    if (next === before && nextMs === windowMs) continue
    const window = nextMs === windowMs ? {} : { windowSeconds: nextMs / 1000 }
    upcomingChanges.push({ announced, from: instant(fromAt), limit: next, ...window })
    before = next
    windowMs = nextMs
  }
  return upcomingChanges
}

/** Returns which rule decides a limit for a client, and why. */
export function decidedBy({ limit, own, set }: Rules, nowMs: number) {
  const rule = inForce(limit, own, set, nowMs)
  const until = 'untilAt' in rule && rule.untilAt !== undefined ? `, until ${instant(rule.untilAt)}` : ''
  if (set !== undefined && rule === set) {
    const by = set.by === undefined ? '' : ` by ${set.by}`
    const note = set.note === undefined ? '' : `: ${set.note}`
    return {
      decidedBy: 'override' as const,
      because: `an override${until || ', for good'}, set at ${instant(set.setAt)}${by}${note}`,
    }
  }
  if (rule === own)
    return { decidedBy: 'client' as const, because: `the client's own limit of the file${until}` }
  const ended = own?.untilAt === undefined ? '' : `; the client's own limit ended at ${instant(own.untilAt)}`
  if (!('fromAt' in rule)) return { decidedBy: 'limit' as const, because: `the limit of the file${ended}` }
  return { decidedBy: 'change' as const, because: `changed at ${instant(rule.fromAt)}${ended}` }
}
