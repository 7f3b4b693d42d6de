import type { Clock } from '../../runtime/clock.ts'
import type { Leases } from '../leases.ts'
import { admits, type Quota, sharedUs, verdictOf } from '../quota.ts'
import {
  type Charge,
  type Charged,
  chargeOf,
  type Correction,
  type OwnCalls,
  type RemoteStore,
  type Settlement,
} from '../store.ts'
import { createAnswered } from './answered.ts'
import { createHandOver } from './hand-over.ts'
import type { KeyState } from './key-state.ts'
import { createKeys } from './keys.ts'
import { createLocalAllowances, type QuotaVerdict } from './local-allowances.ts'
import { createLocalTime } from './local-time.ts'

/**
 * Minimum spread: the clock of the server that gets the calls may be known less well than that of
 * the last, by about a round trip.
 */
const MIN_SPREAD_MS = 10

interface LocalOptions {
  readonly store: Pick<RemoteStore, 'spreadMs' | 'dateAt' | 'merge'>
  readonly leases: Leases
  readonly isTracked: (quota: Quota) => boolean
  readonly isUp: (quota: Quota) => boolean
  readonly gateways: () => number
  /** Percent of each limit that this gateway may admit at least; default 0. */
  readonly partPercent?: number | undefined
}

/**
 * Creates the counters that this process uses while the store does not answer. Each gateway may
 * admit an equal part of the calls that the store last reported as remaining, or `partPercent` of
 * the limit if that is more. It keeps the calls, with their instants, until the store has merged
 * them.
 */
export function createLocalCounters(clock: Clock, options: LocalOptions) {
  const { store, leases, isTracked, isUp, partPercent = 0 } = options
  const keys = createKeys()
  const time = createLocalTime(clock, store)
  const { nowUs, epochMs, dateMs, frameOf } = time
  const { partOf, countIn, allowance } = createLocalAllowances(time, leases, partPercent)
  const answered = createAnswered({ clock, keys, leases, isTracked, gateways: options.gateways })

  const own: OwnCalls = {
    isEmpty: () => !keys.hasKept(),
    unstored: (key) => leases.countUnstored(key, clock.now()),
    since: (key, atMs, accessKey) => keys.find(key)?.countSince(Math.floor(atMs * 1000), accessKey),
  }

  function release(state: KeyState): void {
    if (state.expire(nowUs())) keys.release(state)
  }

  /**
   * Counts a call of this gateway, at the instant from which its callers have to wait: Redis may
   * take it for that late.
   */
  function admit({ quota, state }: QuotaVerdict, at: number, lease: string | undefined): void {
    if (state === undefined) return leases.hold(quota, lease!, -Infinity, at / 1000)
    const spread = Math.max(MIN_SPREAD_MS, store.spreadMs(quota.key) ?? 0)
    state.admit(frameOf(quota.limit, quota, at), quota, spread)
    keys.keep(state)
  }

  /** True if the call is part of an access in progress, which the store has, or an own call began. */
  function isInAccess(quota: Quota, state: KeyState, at: number): boolean {
    const { access } = quota
    if (access === undefined) return false
    const frame = frameOf(1, access, at)
    if (state.countSince(frame.horizonUs, access.key) !== undefined) return true
    return keys.know(quota, access.key).countIn(frame, 1).used > 0
  }

  function decide(quotas: readonly Quota[], gateways: number, lease?: string, charging = false) {
    const at = nowUs()
    const verdicts = quotas.map((quota): QuotaVerdict => {
      if (quota.isConcurrent) {
        const hasRoom = leases.count(quota.key) < partOf(quota, gateways)
        return { quota, state: undefined, verdict: hasRoom ? 'pays' : 'none' }
      }
      const state = keys.know(quota, quota.key)
      const { cost = 1 } = quota
      const { used, room } = countIn(state, quota, gateways, at)
      return { quota, state, verdict: verdictOf(quota, used, room >= cost, isInAccess(quota, state, at)) }
    })
    const admitted = admits(verdicts)
    const allowances = verdicts.map((one) => {
      if (charging && admitted && one.verdict === 'pays') admit(one, at, lease)
      return allowance(one, gateways, at, charging)
    })
    for (const { state } of verdicts) if (state !== undefined) release(state)
    const decidedAt = epochMs(at / 1000)
    return chargeOf(quotas, allowances, { admitted, mode: 'local', decidedAt, chargedUs: at, lease })
  }

  const handOver = createHandOver({ store, keys, isUp, answered, release })

  return {
    /** Charges this gateway's part of each quota, at least one call; all of them or none. */
    charge: (quotas: readonly Quota[], gateways: number, lease?: string): Charge =>
      decide(quotas, gateways, lease, true),
    peek: (quotas: readonly Quota[], gateways: number) => decide(quotas, gateways).allowances,
    answered,
    own,
    dateMs,
    handOverAll: handOver.turn,
    /**
     * Corrects what a call was charged, as far as it counts here. Returns the settlement that the store
     * is to do; undefined if it does not have the call.
     */
    settle({ mode, chargedUs }: Charged, { quota, points }: Correction): Settlement | undefined {
      const atUs = chargedUs!
      if (!isTracked(quota)) return { quota, points, chargedUs: atUs }
      const state = keys.know(quota, quota.key)
      const lateUs = sharedUs(quota, dateMs(quota.key, atUs))
      if (mode === 'local' && state.settleOwn(points, atUs, lateUs)) return undefined
      const spreadMs = mode === 'local' ? Math.max(MIN_SPREAD_MS, state.spreadMs) : undefined
      const now = nowUs()
      // As well as the server's clock is known here.
      const madeAtUs = spreadMs === undefined ? now - (dateMs(quota.key, now) * 1000 - atUs) : atUs
      if (madeAtUs > frameOf(quota.limit, quota, now).horizonUs) state.stored.settle(points)
      return { quota, points, chargedUs: atUs, spreadMs }
    },
    /** True while the store may not have calls of a key yet that it was sent. */
    isMerging: (key: string): boolean => keys.find(key)?.isMerging() === true,
    keys: (matches: (key: string) => boolean) => [
      ...keys.matching(matches),
      ...Array.from(leases.keys()).filter(matches),
    ],
    reset: keys.reset,
  }
}
