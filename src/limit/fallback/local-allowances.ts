import { search } from '../../runtime/search.ts'
import type { Leases } from '../leases.ts'
import type { Quota, Verdict } from '../quota.ts'
import { type Allowance, allowanceOf } from '../store.ts'
import type { KeyState } from './key-state.ts'
import type { LocalTime } from './local-time.ts'
import { leastPart, perGateway } from './part.ts'

/** The verdict about one quota of a call, and what is known of its key. */
export interface QuotaVerdict {
  readonly quota: Quota
  /** Undefined for a limit of calls at once. */
  readonly state: KeyState | undefined
  readonly verdict: Verdict
}

/** Creates the allowances of this gateway's part of each limit. `partPercent` is the least part. */
export function createLocalAllowances(time: LocalTime, leases: Leases, partPercent: number) {
  const { epochMs, dateMs, frameOf } = time
  const leastOf = ({ limit }: Quota): number => leastPart(limit, partPercent)
  /** Returns the points of a limit that this gateway may admit if the store has counted none. */
  const partOf = (quota: Quota, gateways: number): number =>
    perGateway(quota.limit, gateways, quota.cost, leastOf(quota))
  /** Returns the points of a key in its window, and those that this gateway may still admit. */
  const countIn = (state: KeyState, quota: Quota, gateways: number, atUs: number) =>
    state.countIn(frameOf(quota.limit, quota, atUs), gateways, quota.cost, leastOf(quota))

  /** Returns the allowance of a limit with a window, and searches for the instant at which its calls grow. */
  function inWindow(
    quota: Quota,
    state: KeyState,
    verdict: Verdict,
    gateways: number,
    at: number,
  ): Allowance {
    const { cost = 1, calendar } = quota
    const part = partOf(quota, gateways)
    const roomAt = (atUs: number): number => countIn(state, quota, gateways, atUs).room
    const { used, room } = countIn(state, quota, gateways, at)
    const remaining = Math.max(0, room)
    /** Returns when the call can pass, or when more calls can, in microseconds of the local clock. */
    function growsAt(): number {
      // All calls of a calendar period leave at its end.
      const { endUs } = frameOf(quota.limit, quota, at)
      if (endUs !== undefined) return endUs
      const isUnused = remaining === part && part >= cost
      if (isUnused) return at
      const wantedRoom = verdict === 'none' ? cost : remaining + 1
      // All calls have left by the end of one window.
      const emptyAt = at + Math.ceil((quota.windowMs + state.spreadMs) * 1000)
      return search(at, emptyAt, (atUs) => roomAt(atUs) >= wantedRoom)
    }
    const growsUs = growsAt()
    const resetAt = calendar?.periodAt(dateMs(quota.key, at)).endMs ?? epochMs(growsUs / 1000)
    const waitMs = (growsUs - at) / 1000
    const ofPart = { ...quota, limit: part }
    const own = allowanceOf(ofPart, verdict !== 'none', part - remaining, resetAt, waitMs)
    return { part, ...own, limit: quota.limit, used }
  }

  return {
    partOf,
    countIn,
    /** Returns the allowance of a quota at a local instant, after its call is counted. */
    allowance(
      { quota, state, verdict }: QuotaVerdict,
      gateways: number,
      at: number,
      charging: boolean,
    ): Allowance {
      if (state !== undefined) return inWindow(quota, state, verdict, gateways, at)
      const part = partOf(quota, gateways)
      const ofPart = { ...quota, limit: part }
      const own = leases.allowance(ofPart, verdict !== 'none', epochMs(at / 1000), !charging)
      return { part, ...own, limit: quota.limit }
    },
  }
}
