import { search } from '../../runtime/search.ts'
import type { Frame } from '../memory/call-log.ts'
import { fullAt, type Quota, type Window } from '../quota.ts'
import type { Allowance, Merge, OwnCall, OwnCount } from '../store.ts'

/**
 * The calls of a key that the store does not have: calls that the fallback admitted, and refunds.
 *
 *     STORED   none
 *       |  the fallback admits a call, or a call is refunded
 *       v
 *     OWN      `#own` and `#back`: each question to the store has their number, which it adds to its own
 *       |  a turn of the hand-over sends them, as a merge with a number
 *       v
 *     SENT     `#sent`, which is under way; answered: STORED; OWN, if there are more meanwhile
 *       |  ^
 *       |  |   a turn of the hand-over sends the same merge again, which the store does only once
 *       v  |
 *     UNSURE   `#sent` had no answer: the store may have them
 *
 * From OWN and UNSURE back to STORED, too, when all calls have left the window. A reset forgets the key, in any state.
 */
interface SentMerge {
  readonly merge: Merge
  /** The points of all own calls up to its last. */
  readonly upTo: number
  isUnderWay: boolean
}

/** Own calls, and the points of all own calls before them. */
interface KeptCalls extends OwnCall {
  readonly before: number
}

/** Maximum instants of a merge: more would keep Redis for more than 2 ms. */
const MAX_MERGED = 1000

/** The parts of a limit or an access, and of its allowance, from which the state of a key is recorded. */
type Counted = Window & Pick<Quota, 'cost' | 'counts'>
type Stored = Pick<Allowance, 'admitted' | 'limit' | 'used' | 'own' | 'resetAfterMs'>

/** A key as this gateway knows it: the key of a limit, a proof or an access. Instants are microseconds of the clock. */
export class KeyState {
  readonly key: string
  /**
   * The calls that the store counted at its last answer, as far as an answer shows:
   *
   *     used ------------+
   *                      | the first call leaves the window
   *                      +-- rest ---------+
   *                                        | all others are assumed to be as late as the last
   *                                        +-- 0
   *                   firstAt + window  lastAt + window
   */
  used = 0
  /** The instant of the first of these calls, and the number of the others. */
  firstAt = 0
  rest = 0
  /** The instant at which the store can last have admitted a call. */
  lastAt = 0
  /**
   * The same as `firstAt` and `rest` for each higher cost and each share that the store refused
   * since it last admitted a call, by `fullAt`: more calls must leave.
   */
  #restOf: Map<number, readonly [firstAt: number, rest: number]> | undefined

  #sent: SentMerge | undefined
  /**
   * Own calls, oldest first, `spreadMs` later than they were. Those that began an access are of the
   * key of its limit.
   */
  #own: KeptCalls[] = []
  /**
   * The own calls that began an access, by its key, oldest first: with a token for each call, there
   * are as many as the limit allows.
   */
  #ownOf: Map<string, KeptCalls[]> | undefined
  /** Points of all own calls, also of those that are no longer kept. */
  #total = 0
  spreadMs = 0
  /** The quota under which own calls were last counted, or refunded. */
  quota: Quota | undefined
  #back: Merge['back']

  constructor(key: string) {
    this.key = key
  }

  /**
   * Records what the store counted at a local instant, or before. `mayHaveCharged`: by this call, or
   * another one since the last record; `isCharged`: this call certainly.
   */
  record(counted: Counted, stored: Stored, atMs: number, mayHaveCharged: boolean, isCharged = false): void {
    const { windowMs, calendar, cost = 1, counts } = counted
    const { admitted, limit, used, own, resetAfterMs } = stored
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
    if (calendar || mayHaveCharged || this.lastAt + windowMs * 1000 <= at) this.lastAt = at
  }

  /** Records that the store has the call of this access, made at a local instant. */
  recordAccess(atUs: number): void {
    this.used = 1
    this.rest = 0
    this.firstAt = this.lastAt = atUs
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
    const first = this.#firstAfter(horizonUs)
    const own = first === undefined ? 0 : this.#total - first.before
    return { used: stored + own, room: perGateway(limit - stored, gateways, cost) - own }
  }

  /**
   * Counts the own calls after a local instant, or those of them that began an access: those of a
   * merge that the store may have, and the others.
   */
  countSince(horizonUs: number, accessKey?: string): OwnCount | undefined {
    const first = this.#firstAfter(horizonUs)
    if (first === undefined) return undefined
    let [calls, sent] = [0, 0]
    if (accessKey === undefined) {
      const upTo = Math.max(first.before, this.#sent?.upTo ?? 0)
      calls = this.#total - upTo
      sent = upTo - first.before
    } else
      for (const own of this.#ownOf?.get(accessKey) ?? []) {
        if (own.atUs <= horizonUs) continue
        if (this.#isSent(own)) sent += own.calls
        else calls += own.calls
      }
    if (calls + sent === 0) return undefined
    return { calls, sent, number: this.#sent?.merge.number ?? 0, spreadMs: this.spreadMs }
  }

  /** Returns the first own calls after a local instant. */
  #firstAfter(horizonUs: number): KeptCalls | undefined {
    return this.#own[search(0, this.#own.length, (i) => this.#own[i]!.atUs > horizonUs)]
  }

  /** Counts a call of this gateway under a quota. */
  admit({ nowUs, horizonUs, spanUs }: Frame, quota: Quota, spreadMs: number): void {
    const { windowMs, cost = 1, access } = quota
    // For the longest possible period: the server's clock may be set back to the one before.
    const goneUs = nowUs - windowMs * 1000
    while (this.#own.length > 0 && this.#own[0]!.atUs <= goneUs) this.#forget(this.#own.shift()!)
    // The same for all own calls, so that their instants never decrease.
    if (this.#own.length === 0) this.spreadMs = spreadMs
    const atUs = nowUs + Math.ceil(this.spreadMs * 1000)
    const last = this.#own.at(-1)
    // Calls of one instant, or of a limit above 1000 of one span, are sent together.
    const isInSpan = last && Math.floor(last.atUs / spanUs) === Math.floor(atUs / spanUs)
    const isPlain = access === undefined && last?.access === undefined
    const isShared = isInSpan && isPlain && last.atUs > horizonUs && !this.#isSent(last)
    if (isShared) this.#own.pop()
    const before = isShared ? last.before : this.#total
    this.#total += cost
    this.#keep({ atUs, calls: this.#total - before, before, access })
    this.quota = quota
  }

  #keep(own: KeptCalls): void {
    this.#own.push(own)
    if (own.access === undefined) return
    this.#ownOf ??= new Map()
    const { key } = own.access
    const same = this.#ownOf.get(key)
    if (same === undefined) this.#ownOf.set(key, [own])
    else same.push(own)
  }

  /** Removes calls, which are no longer in `#own`, from those of their access. */
  #forget(own: KeptCalls): void {
    if (own.access === undefined) return
    const { key } = own.access
    const same = this.#ownOf!.get(key)!
    // The oldest or the newest, as calls leave `#own` at its ends.
    if (same[0] === own) same.shift()
    else same.pop()
    if (same.length === 0) this.#ownOf!.delete(key)
  }

  /** True if calls are in a merge that the store may have. */
  #isSent({ before }: KeptCalls): boolean {
    return this.#sent !== undefined && before < this.#sent.upTo
  }

  /**
   * Takes a call's points from the newest own ones in a window, as they are all alike; returns
   * false if too few of them are not sent.
   */
  takeBack({ horizonUs }: Frame, cost: number): boolean {
    if ((this.countSince(horizonUs)?.calls ?? 0) < cost) return false
    this.#total -= cost
    let last = this.#own.at(-1)
    while (last !== undefined && last.before + last.calls > this.#total) {
      this.#own.pop()
      this.#forget(last)
      if (last.before < this.#total) this.#keep({ ...last, calls: this.#total - last.before })
      last = this.#own.at(-1)
    }
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
  }

  /**
   * Returns the merge to be sent now, with a number for a new one; undefined if there is nothing to
   * send, or it is under way.
   */
  send(number: number): Merge | undefined {
    if (this.#sent?.isUnderWay) return undefined
    this.#sent ??= this.#nextMerge(number)
    if (this.#sent !== undefined) this.#sent.isUnderWay = true
    return this.#sent?.merge
  }

  #nextMerge(number: number): SentMerge | undefined {
    const calls = this.#own.slice(0, MAX_MERGED)
    const last = calls.at(-1)
    const back = this.#back
    if (last === undefined && back === undefined) return undefined
    this.#back = undefined
    const merge = { number, quota: this.quota!, calls, spreadMs: this.spreadMs, back }
    return { merge, upTo: last === undefined ? 0 : last.before + last.calls, isUnderWay: false }
  }

  /** Ends the merge under way, and returns the calls that the store has then; it may have others. */
  onAnswer(isMerged: boolean): readonly OwnCall[] {
    const sent = this.#sent
    if (!sent?.isUnderWay) return []
    sent.isUnderWay = false
    if (!isMerged) return []
    const { calls } = sent.merge
    const left = search(0, this.#own.length, (i) => !this.#isSent(this.#own[i]!))
    for (const own of this.#own.splice(0, left)) this.#forget(own)
    this.#sent = undefined
    this.lastAt = Math.max(this.lastAt, calls.at(-1)?.atUs ?? 0)
    return calls
  }

  /** Forgets all own calls. */
  reset(): void {
    this.#own = []
    this.#ownOf = undefined
    this.#back = this.#sent = undefined
  }

  /**
   * Forgets own calls if all have left the window, at a local instant and the time of the store;
   * returns true if there are none then.
   */
  expire(nowUs: number, dateMs: number): boolean {
    if (this.#sent?.isUnderWay) return false
    const last = this.#own.at(-1)
    if (last !== undefined && last.atUs > nowUs - this.quota!.windowMs * 1000) return false
    const refunds = [this.#sent?.merge.back, this.#back]
    if (refunds.some((back) => back !== undefined && back.endsAt > dateMs)) return false
    this.reset()
    return true
  }
}

/** Returns one gateway's fraction of some points, at least those of one call. */
export const perGateway = (points: number, gateways: number, cost = 1): number =>
  Math.min(points, Math.max(cost, Math.floor(points / gateways)))
