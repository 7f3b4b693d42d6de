import { type Clock, epochOf } from '../../runtime/clock.ts'
import { search } from '../../runtime/search.ts'
import { type Frame, frameAt } from '../memory/call-log.ts'
import { type Leases, storedUntil } from '../leases.ts'
import { admits, type KeyedWindow, type Quota, type Verdict, verdictOf } from '../quota.ts'
import {
  type Allowance,
  allowanceAt,
  allowanceOf,
  type Charge,
  chargeOf,
  type OwnCalls,
  type RemoteStore,
} from '../store.ts'
import type { KeyState } from './key-state.ts'
import { createKeys } from './keys.ts'
import { leastPart, perGateway } from './part.ts'

/**
 * Minimum spread: the clock of the server that gets the calls may be known less well than that of
 * the last, by about a round trip.
 */
const MIN_SPREAD_MS = 10
/** Maximum merges under way: Redis decides calls between them. A merge of 1000 calls takes it 2 ms. */
const MERGES_AT_ONCE = 4

/** An access counts as a limit that has admitted its one call. */
const OF_ACCESS = { admitted: true, limit: 1 } as const

/** A quota of a call, and what is known of its key. */
interface Found {
  readonly quota: Quota
  /** Undefined for a limit of calls at once. */
  readonly state: KeyState | undefined
  readonly verdict: Verdict
}

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
  const { store, leases, isTracked, isUp, gateways: gatewaysNow, partPercent = 0 } = options
  const epochMs = epochOf(clock)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  const keys = createKeys()
  let lastMerge = 0

  const own: OwnCalls = {
    isEmpty: () => !keys.hasKept(),
    unstored: (key) => leases.countUnstored(key, clock.now()),
    since: (key, atMs, accessKey) => keys.find(key)?.countSince(Math.floor(atMs * 1000), accessKey),
  }

  /** Returns the time of a key's server, in epoch milliseconds; of this machine if that is unknown. */
  const dateMs = (key: string, atUs = nowUs()): number =>
    store.dateAt(key, atUs / 1000) ?? epochMs(atUs / 1000)
  /** Returns a window at a local instant, by the clock of its key's server for calendar periods. */
  const frameOf = (limit: number, counted: KeyedWindow, atUs: number): Frame =>
    frameAt(limit, counted, atUs, counted.calendar === undefined ? 0 : dateMs(counted.key, atUs))

  const leastOf = ({ limit }: Quota): number => leastPart(limit, partPercent)
  /** Returns the points of a limit that this gateway may admit if the store has counted none. */
  const partOf = (quota: Quota, gateways: number): number =>
    perGateway(quota.limit, gateways, quota.cost, leastOf(quota))
  const countIn = (state: KeyState, quota: Quota, gateways: number, atUs: number) =>
    state.countIn(frameOf(quota.limit, quota, atUs), gateways, quota.cost, leastOf(quota))

  function release(state: KeyState): void {
    if (state.expire(nowUs(), dateMs(state.key))) keys.release(state)
  }

  /**
   * Counts a call of this gateway, at the instant from which its callers have to wait: Redis may
   * take it for that late.
   */
  function admit({ quota, state }: Found, at: number, lease: string | undefined): void {
    if (state === undefined) return leases.hold(quota, lease!, -Infinity, at / 1000)
    const spread = Math.max(MIN_SPREAD_MS, store.spreadMs(quota.key) ?? 0)
    state.admit(frameOf(quota.limit, quota, at), quota, spread)
    keys.keep(state)
  }

  function allowance(found: Found, gateways: number, at: number, charging: boolean): Allowance {
    const { quota, state, verdict } = found
    if (state !== undefined) return allowanceInWindow(quota, state, verdict, gateways, at)
    const part = partOf(quota, gateways)
    const ofPart = { ...quota, limit: part }
    const own = leases.allowance(ofPart, verdict !== 'none', epochMs(at / 1000), !charging)
    return { ...own, limit: quota.limit, part }
  }

  function allowanceInWindow(
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
      return search(at + 1, emptyAt, (atUs) => roomAt(atUs) >= wantedRoom)
    }
    const growsUs = growsAt()
    const resetAt = calendar?.periodAt(dateMs(quota.key, at)).endMs ?? epochMs(growsUs / 1000)
    const waitMs = (growsUs - at) / 1000
    const ofPart = { ...quota, limit: part }
    const own = allowanceOf(ofPart, verdict !== 'none', part - remaining, resetAt, waitMs)
    return { ...own, limit: quota.limit, used, part }
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
    const found = quotas.map((quota): Found => {
      if (quota.isConcurrent) {
        const hasRoom = leases.count(quota.key) < partOf(quota, gateways)
        return { quota, state: undefined, verdict: hasRoom ? 'pays' : 'none' }
      }
      const state = keys.know(quota, quota.key)
      const { cost = 1 } = quota
      const { used, room } = countIn(state, quota, gateways, at)
      return { quota, state, verdict: verdictOf(quota, used, room >= cost, isInAccess(quota, state, at)) }
    })
    const admitted = admits(found)
    const allowances = found.map((one) => {
      if (charging && admitted && one.verdict === 'pays') admit(one, at, lease)
      return allowance(one, gateways, at, charging)
    })
    for (const { state } of found) if (state !== undefined) release(state)
    const decidedAt = epochMs(at / 1000)
    return chargeOf(quotas, allowances, { admitted, mode: 'local', decidedAt, lease })
  }

  /** Records an answer of the store, and returns it. `askedMs` is the local instant of a question with leases. */
  function answered(quotas: readonly Quota[], charge: Charge, askedMs = 0): Charge {
    const { admitted, localMs = clock.now(), lease } = charge
    // Another gateway may have been admitted since the last answer.
    const mayHaveCharged = admitted || gatewaysNow() > 1
    const proofAt = quotas.findIndex(({ isProof }) => isProof)
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      const allowance = allowanceAt(charge, i, proofAt)
      if (quota.isConcurrent) {
        if (lease !== undefined && admitted && allowance.admitted)
          holdStored(quota, lease, allowance, askedMs)
        continue
      }
      if (!isTracked(quota)) continue
      keys.know(quota, quota.key).stored.record(quota, allowance, localMs, mayHaveCharged, admitted)
      if (quota.access === undefined) continue
      const access = { ...OF_ACCESS, ...allowance.access! }
      keys.know(quota, quota.access.key).stored.record(quota.access, access, localMs, mayHaveCharged)
    }
    return charge
  }

  /**
   * Holds a lease that the store has added since it was asked. If it then had fewer than were held,
   * it has lost them.
   */
  function holdStored(quota: Quota, lease: string, { used }: Allowance, askedMs: number): void {
    leases.hold(quota, lease, storedUntil(quota, askedMs), clock.now())
    const { key } = quota
    if (used < leases.count(key)) leases.doubt(key, used, askedMs)
  }

  /** Hands the own calls of a key over, also those that come meanwhile. */
  async function handOver(state: KeyState): Promise<void> {
    for (;;) {
      const merge = state.send(++lastMerge)
      if (merge === undefined) break
      const merging = store.merge(merge).then((charge) => ({ charge }))
      const merged = await merging.catch(() => undefined)
      for (const { atUs, access } of state.onAnswer(merged !== undefined))
        if (access !== undefined) keys.know(merge.quota, access.key).stored.recordOne(atUs)
      if (merged === undefined) break
      if (merged.charge !== undefined) answered([merge.quota], merged.charge)
    }
    release(state)
  }

  let turn: Promise<unknown> | undefined
  /** Hands the own calls of all keys over: a turn of the background. */
  function handOverAll(): Promise<unknown> {
    const states = keys.next()
    async function handOverNext(): Promise<void> {
      for (const state of states)
        if (isUp(state.quota!)) await handOver(state)
        else release(state)
    }
    if (turn !== undefined) return turn
    turn = Promise.all(Array.from({ length: MERGES_AT_ONCE }, handOverNext)).finally(() => (turn = undefined))
    return turn
  }

  return {
    /** Charges this gateway's part of each quota, at least one call; all of them or none. */
    charge: (quotas: readonly Quota[], gateways: number, lease?: string): Charge =>
      decide(quotas, gateways, lease, true),
    peek: (quotas: readonly Quota[], gateways: number) => decide(quotas, gateways).allowances,
    answered,
    own,
    dateMs,
    handOverAll,
    /** Gives a call back: one of this gateway's own, or with a merge, at once if no other is under way. */
    async giveBack(quota: Quota, endsAt: number): Promise<void> {
      const state = keys.know(quota, quota.key)
      // As far as is known here: the server's clock, which decides, may have been set back.
      const isOver = dateMs(quota.key) >= endsAt
      if (!isOver && state.takeBack(frameOf(quota.limit, quota, nowUs()), quota.cost ?? 1)) return
      state.giveBack(quota, endsAt, isOver)
      keys.keep(state)
      if (isUp(quota)) await handOver(state)
    },
    keys: (matches: (key: string) => boolean) => [
      ...keys.matching(matches),
      ...Array.from(leases.keys()).filter(matches),
    ],
    reset: keys.reset,
  }
}
