import { add, callsOf, CallLog, dropUpTo, type Frame, takeBack, usedIn } from '../memory/call-log.ts'
import { fullAt, type Quota, type Window } from '../quota.ts'
import type { Allowance, Merge, OwnCall, OwnCount } from '../store.ts'

/**
 * The calls of a key that the store does not have: calls that the fallback admitted, and refunds.
 *
 *     STORED   none
 *       |  the fallback admits a call, or a call is refunded
 *       v
 *     OWN      each question to the store has their number, which it adds to its own
 *       |  a turn of the hand-over sends them, as a merge with a number
 *       v
 *     SENT     answered: STORED; OWN, if there are more meanwhile
 *       |  ^
 *       |  |   a turn of the hand-over sends the same merge again, which the store does only once
 *       v  |
 *     UNSURE   no answer: the store may have them
 *
 * From OWN and UNSURE back to STORED, too, when all calls have left the window. A reset forgets the key, in any state.
 */
export type HandOver =
  | { readonly state: 'stored' }
  | { readonly state: 'own' }
  | { readonly state: 'sent' | 'unsure'; readonly merge: Merge; readonly sent: readonly SentCalls[] }

/** The calls of a log that a merge contains: the first `total` that were ever admitted. */
interface SentCalls {
  readonly log: CallLog
  readonly total: number
}

/** An own call, and the key of the access that it began. */
interface EachCall extends OwnCall {
  readonly state?: KeyState | undefined
}

/** Maximum instants of a merge: more would keep Redis for more than 2 ms. */
const MAX_MERGED = 1000

/** The part of an allowance from which the state of a key is recorded. */
type Stored = Pick<Allowance, 'admitted' | 'limit' | 'used' | 'own' | 'resetAfterMs'>

const STORED: HandOver = { state: 'stored' }
const OWN: HandOver = { state: 'own' }

/** A key as this gateway knows it: the key of a limit, a proof or an access. Instants are microseconds of the clock. */
export class KeyState {
  readonly key: string
  readonly isProof: boolean
  /** The calls that the store counted at its last answer. */
  used = 0
  /** The instant of the first of these calls that leaves the window, and the calls that remain then. */
  firstAt = 0
  rest = 0
  /** The instant at which the store can last have admitted a call: the rest were not made later. */
  lastAt = 0
  /**
   * The same as `firstAt` and `rest` for each higher cost and each share that the store refused
   * since it last admitted a call, by `fullAt`: more calls must leave.
   */
  #restOf: Map<number, readonly [firstAt: number, rest: number]> | undefined

  handOver: HandOver = STORED
  /** Own calls, `spreadMs` later than they were, in the window in which they were last counted. */
  own: CallLog | undefined
  spreadMs = 0
  #windowMs = 0
  /** The quota of the own calls; undefined for an access, whose calls are handed over with those of its limit. */
  quota: Quota | undefined
  /** The key of the limit, for an access. */
  limit: KeyState | undefined
  /** The own calls one by one, oldest first, since one of them began an access. */
  #each: EachCall[] = []
  #back: Merge['back']

  constructor(key: string, isProof: boolean) {
    this.key = key
    this.isProof = isProof
  }

  /** Records what the store counted at a local instant, or before. */
  record(
    { windowMs, calendar, cost = 1, counts }: Window & Pick<Quota, 'cost' | 'counts'>,
    { admitted, limit, used, own, resetAfterMs }: Stored,
    atMs: number,
    mayHaveCharged: boolean,
    isCharged = false,
  ): void {
    const at = Math.round(atMs * 1000)
    // A call may take as many points as have just left; when they left is known only as well as the server's clock.
    const isSame = !isCharged && this.used === used - own
    const isUnchanged = isSame && this.firstAt > at - windowMs * 1000
    if (!isUnchanged) this.#restOf = undefined
    this.used = used - own
    // Above the limit, all calls in excess leave together with the first.
    const most = admitted ? limit : fullAt({ limit, cost })
    const rest = Math.max(0, Math.min(used, most) - own - 1)
    const firstAt = calendar === undefined ? at + Math.ceil((resetAfterMs - windowMs) * 1000) : at
    const isLonger = (cost > 1 || counts !== undefined) && !admitted && calendar === undefined
    if (isLonger) (this.#restOf ??= new Map()).set(most, [firstAt, rest])
    if (!isLonger || !isUnchanged) {
      this.firstAt = firstAt
      this.rest = rest
    }
    if (calendar !== undefined || mayHaveCharged || this.lastAt + windowMs * 1000 <= at) this.lastAt = at
  }

  /** Records that the store has the call of this access, made at a local instant. */
  #recordAccess(atMs: number): void {
    this.used = 1
    this.rest = 0
    this.firstAt = this.lastAt = Math.round(atMs * 1000)
  }

  /**
   * Returns the points in a window, and those that a call of this cost may still take in it; `room`
   * may be negative.
   */
  countIn(frame: Frame, gateways: number, cost?: number) {
    const { horizonUs, limit } = frame
    let stored = this.firstAt > horizonUs ? this.used : this.lastAt > horizonUs ? this.rest : 0
    if (this.#restOf !== undefined)
      for (const [firstAt, rest] of this.#restOf.values())
        if (firstAt <= horizonUs) stored = Math.min(stored, rest)
    const own = this.own === undefined ? 0 : usedIn(this.own, frame)
    return { used: stored + own, room: perGateway(Math.max(0, limit - stored), gateways, cost) - own }
  }

  /** Returns the own calls after a local instant: those of a merge that the store may have, and the others. */
  countSince(horizonUs: number): OwnCount | undefined {
    const { own, spreadMs, limit } = this
    const all = own === undefined ? 0 : usedIn(own, { horizonUs })
    if (all === 0) return undefined
    const { handOver, key } = limit ?? this
    if (!('sent' in handOver)) return { calls: all, spreadMs }
    const sent = handOver.sent.find(({ log }) => log === own)
    const calls = own!.total - (sent?.total ?? 0)
    const merge = { calls: Math.max(0, all - calls), number: handOver.merge.number, key }
    return { calls: Math.min(all, calls), spreadMs, merge }
  }

  /** Counts a call of this gateway under a quota, or as the beginning of an access. */
  admit(frame: Frame, { windowMs }: Window, spreadMs: number, quota?: Quota, access?: KeyState): void {
    if (this.own === undefined) {
      this.own = new CallLog()
      // The same for all calls of a log: a call that is counted further ahead than others would
      // drop those still in the window.
      this.spreadMs = spreadMs
    }
    const atUs = frame.nowUs + Math.ceil(this.spreadMs * 1000)
    const isEach = access !== undefined || this.#each.length > 0
    if (isEach && this.#each.length === 0) this.#each = plainCalls(this.own)
    const cost = quota?.cost ?? 1
    add(this.own, frame, cost, atUs)
    this.#windowMs = windowMs
    this.quota = quota
    if (isEach) {
      this.#dropEach((frame.nowUs - windowMs * 1000) / 1000)
      this.#each.push({ atMs: atUs / 1000, calls: cost, access: access && quota!.access, state: access })
    }
    if (quota !== undefined && this.handOver.state === 'stored') this.handOver = OWN
  }

  #dropEach(untilMs: number): void {
    const kept = this.#each.findIndex(({ atMs }) => atMs > untilMs)
    this.#each.splice(0, kept === -1 ? this.#each.length : kept)
  }

  /**
   * Takes a call's points from the own ones in a window, as they are all alike; returns false if
   * too few of them are not sent.
   */
  takeBack(frame: Frame, cost: number): boolean {
    const { own, handOver } = this
    const sent = 'sent' in handOver ? handOver.sent.find(({ log }) => log === own) : undefined
    if (own === undefined || own.total - (sent?.total ?? 0) < cost || usedIn(own, frame) < cost) return false
    takeBack(own, cost)
    return true
  }

  /** Records a refund to the period that ends at `endsAt`, unless a later period has refunds. */
  giveBack(quota: Quota, endsAt: number, isOver: boolean): void {
    const { cost = 1 } = quota
    if (!isOver) this.used = Math.max(0, this.used - cost)
    const back = this.#back
    if (back !== undefined && back.endsAt > endsAt) return
    this.#back = { calls: (back?.endsAt === endsAt ? back.calls : 0) + cost, endsAt }
    this.quota = quota
    if (this.handOver.state === 'stored') this.handOver = OWN
  }

  /**
   * Returns the merge to be sent now, with a number for a new one; undefined if there is nothing to
   * send, or it is under way.
   */
  send(number: number): Merge | undefined {
    const { handOver } = this
    if (handOver.state === 'stored' || handOver.state === 'sent') return undefined
    if (handOver.state === 'unsure') {
      this.handOver = { ...handOver, state: 'sent' }
      return handOver.merge
    }
    const { calls, sent } = this.#nextCalls()
    if (calls.length === 0 && this.#back === undefined) {
      this.handOver = STORED
      return undefined
    }
    const merge = { number, quota: this.quota!, calls, spreadMs: this.spreadMs, back: this.#back }
    this.#back = undefined
    this.handOver = { state: 'sent', merge, sent }
    return merge
  }

  /** Returns the calls of the next merge, and what they are of each log. */
  #nextCalls(): { readonly calls: readonly EachCall[]; readonly sent: readonly SentCalls[] } {
    const { own } = this
    if (own === undefined) return { calls: [], sent: [] }
    const all: readonly EachCall[] = this.#each.length > 0 ? this.#each : plainCalls(own)
    let end = Math.min(all.length, MAX_MERGED)
    // Calls of one instant stay together.
    while (end > 0 && all[end]?.atMs === all[end - 1]!.atMs) end++
    const [calls, later] = [all.slice(0, end), all.slice(end)]
    const logs = new Map([[own, sum(later)]])
    for (const { state } of calls) if (state?.own !== undefined) logs.set(state.own, 0)
    for (const { state, calls: more } of later) {
      const count = state?.own && logs.get(state.own)
      if (count !== undefined) logs.set(state!.own!, count + more)
    }
    return { calls, sent: Array.from(logs, ([log, rest]) => ({ log, total: log.total - rest })) }
  }

  /** Ends the merge under way: the store has its calls, or may have them. */
  onAnswer(isMerged: boolean): void {
    const { handOver } = this
    if (handOver.state !== 'sent') return
    if (!isMerged) {
      this.handOver = { ...handOver, state: 'unsure' }
      return
    }
    for (const { log, total } of handOver.sent) dropUpTo(log, total)
    const calls: readonly EachCall[] = handOver.merge.calls
    for (const { atMs, state } of calls) if (state !== undefined) state.#recordAccess(atMs)
    const { atMs = -Infinity } = calls.at(-1) ?? {}
    this.#dropEach(atMs)
    this.lastAt = Math.max(this.lastAt, atMs * 1000)
    this.handOver = OWN
  }

  /** Forgets all own calls. */
  reset(): void {
    this.own = this.#back = undefined
    this.#each = []
    this.handOver = STORED
  }

  /**
   * Forgets own calls if all have left the window, at a local instant and the time of the store;
   * returns true if there are none then.
   */
  expire(nowUs: number, dateMs: number): boolean {
    const { own, handOver } = this
    if (handOver.state === 'sent') return false
    const sentUntilMs = handOver.state === 'unsure' ? (handOver.merge.back?.endsAt ?? 0) : 0
    if (own !== undefined && usedIn(own, { horizonUs: nowUs - this.#windowMs * 1000 }) > 0) return false
    if (Math.max(sentUntilMs, this.#back?.endsAt ?? 0) > dateMs) return false
    this.reset()
    return true
  }
}

const plainCalls = (log: CallLog): EachCall[] =>
  callsOf(log).map(([atUs, calls]) => ({ atMs: atUs / 1000, calls }))

const sum = (all: readonly OwnCall[]): number => all.reduce((total, { calls }) => total + calls, 0)

/** Returns one gateway's fraction of some points, at least those of one call. */
export const perGateway = (points: number, gateways: number, cost = 1): number =>
  Math.min(points, Math.max(cost, Math.floor(points / gateways)))
