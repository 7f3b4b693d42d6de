import type { Quota } from '../limit.ts'
import { type CallLog, viewAt } from '../memory/call-log.ts'

/** A key as this gateway knows it. Instants are microseconds of the clock. */
export interface Known {
  /** The quota of the last question. */
  quota: Quota
  /** The calls that the store counted at its last answer. */
  used: number
  /** The instant of the first of these calls that leaves the window, and of all others; later than they were, if not known. */
  firstAt: number
  lastAt: number
  /** Questions without an answer, each of which the store may have charged. */
  asked: number
  /** Calls that this gateway admitted by itself, until the store has them. */
  own: CallLog | undefined
  /** While own calls are added to the store: the end of the question that they go with, or `late` after its timeout. */
  adding: Promise<unknown> | 'late' | undefined
}

/** Returns the calls that this gateway may still make at an instant, if it is asked for no more until then; may be negative. */
export function roomAt(
  atUs: number,
  { own, used, firstAt, lastAt, asked }: Known,
  quota: Quota,
  gateways: number,
) {
  const { limit, windowMs } = quota
  const windowUs = windowMs * 1000
  const stored = atUs < firstAt + windowUs ? used : atUs < lastAt + windowUs ? Math.max(0, used - 1) : 0
  const counted = own === undefined ? 0 : viewAt(own, windowUs, atUs).used
  const share = perGateway(Math.max(0, limit - stored), gateways)
  return Math.min(share, perGateway(limit, gateways)) - counted - asked
}

/** Returns the first instant within a window at which this gateway may make more calls than at `at`. */
export function growsAt(at: number, known: Known, quota: Quota, gateways: number): number {
  const room = Math.max(0, roomAt(at, known, quota, gateways))
  if (room === perGateway(quota.limit, gateways) && room > 0) return at
  // All calls have left by the end of one window.
  let [low, high] = [at, at + quota.windowMs * 1000]
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
