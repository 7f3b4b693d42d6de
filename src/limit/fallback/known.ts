import type { Quota } from '../limit.ts'
import { type CallLog, viewAt } from '../memory/call-log.ts'

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
  /** Set while own calls are added to the store: the end of the question that they go with, or `late` after its timeout. */
  adding: Promise<Error | undefined> | 'late' | undefined
}

/** Returns the calls that this gateway may still make at an instant; may be negative. */
export function roomAt(
  atUs: number,
  { own, used, firstAt, rest, lastAt }: Known,
  quota: Quota,
  gateways: number,
) {
  const { limit, windowMs } = quota
  const windowUs = windowMs * 1000
  const stored = atUs < firstAt + windowUs ? used : atUs < lastAt + windowUs ? rest : 0
  const counted = own === undefined ? 0 : viewAt(own, windowUs, atUs).used
  const share = perGateway(Math.max(0, limit - stored), gateways)
  return Math.min(share, perGateway(limit, gateways)) - counted
}

/** Returns the first instant within a window at which this gateway may make more calls than at `at`. */
export function growsAt(at: number, known: Known, quota: Quota, gateways: number): number {
  const room = Math.max(0, roomAt(at, known, quota, gateways))
  if (room === perGateway(quota.limit, gateways) && room > 0) return at
  // All calls have left by the end of one window.
  let [low, high] = [at, Math.max(at + quota.windowMs * 1000, known.own?.expiresAtUs ?? 0)]
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (roomAt(middle, known, quota, gateways) > room) high = middle
    else low = middle
  }
  return high
}

/** Returns one gateway's fraction of some calls, at least one of them. */
export const perGateway = (calls: number, gateways: number): number =>
  calls === 0 ? 0 : Math.max(1, Math.floor(calls / gateways))
