import type { Quota } from '../limit.ts'
import { type CallLog, type Frame, usedIn } from '../memory/call-log.ts'
import type { Addition, Allowance } from '../store.ts'

/** A key as this gateway knows it. Instants are microseconds of the clock. */
export interface Known {
  /** The quota under which own calls were last counted or added. */
  quota: Quota
  /** The calls that the store counted at its last answer. */
  used: number
  /** The instant of the first of these calls that leaves the window, and the calls that remain then. */
  firstAt: number
  rest: number
  /** The instant at which the store last admitted a call of this gateway: the rest were not made later, if there is no other gateway. */
  lastAt: number
  /** Calls that this gateway admitted by itself, until the store has them; `spreadMs` later than they were. */
  own: CallLog | undefined
  spreadMs: number
  /** Calls to be given back, until they are sent to the store. */
  back: Addition['back']
  /** Set while own calls are added to the store: the end of the question that they go with, or `late` after its timeout. */
  adding: Promise<Error | undefined> | 'late' | undefined
}

/** Records what the store counted at a local instant, or before. */
export function record(
  known: Known,
  { calendar }: Quota,
  { limit, used, resetAfterMs, windowMs }: Allowance,
  atMs: number,
  wasCharged: boolean,
): void {
  const at = Math.round(atMs * 1000)
  known.used = used
  // Above the limit, which was lowered, all calls in excess leave together with the first.
  known.rest = Math.max(0, Math.min(used, limit) - 1)
  known.firstAt = calendar === undefined ? at + Math.ceil((resetAfterMs - windowMs) * 1000) : at
  if (calendar !== undefined || wasCharged || known.lastAt + windowMs * 1000 <= at) known.lastAt = at
}

/** Returns the calls in a window, and those that this gateway may still make in it; `room` may be negative. */
export function countIn(frame: Frame, { own, used, firstAt, rest, lastAt }: Known, gateways: number) {
  const { horizonUs, limit } = frame
  const stored = firstAt > horizonUs ? used : lastAt > horizonUs ? rest : 0
  const added = own === undefined ? 0 : usedIn(own, frame)
  return { used: stored + added, room: perGateway(Math.max(0, limit - stored), gateways) - added }
}

/** Returns one gateway's fraction of some calls, at least one of them. */
export const perGateway = (calls: number, gateways: number): number =>
  calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
