import { search } from '../../runtime/search.ts'
import type { Frame } from '../memory/call-log.ts'
import type { Quota } from '../quota.ts'
import type { Merge, OwnCall, OwnCount } from '../store.ts'
import { perGateway } from './part.ts'
import { StoredCount } from './stored-count.ts'

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

/** Where the calls of a key are that the fallback admitted: see above. */
type HandOver = 'stored' | 'own' | 'sent' | 'unsure'

/** A key as this gateway knows it: the key of a limit, a proof or an access. Instants are microseconds of the clock. */
export class KeyState {
  readonly key: string
  /** What the store counted at its last answer. */
  readonly stored = new StoredCount()

  #sent: SentMerge | undefined
  /**
   * Own calls, oldest first, `#spreadMs` later than they were. Those that began an access are of the
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
  #spreadMs = 0
  #quota: Quota | undefined
  #back: Merge['back']

  constructor(key: string) {
    this.key = key
  }

  /** The quota under which own calls were last counted, or refunded; undefined if there were none. */
  get quota(): Quota | undefined {
    return this.#quota
  }

  /** Milliseconds by which the instants of own calls are later than the calls. */
  get spreadMs(): number {
    return this.#spreadMs
  }

  /** Where the calls are that the fallback admitted. */
  get #state(): HandOver {
    if (this.#sent !== undefined) return this.#sent.isUnderWay ? 'sent' : 'unsure'
    return this.#own.length > 0 || this.#back !== undefined ? 'own' : 'stored'
  }

  /**
   * Returns the points in a window, and those that a call of this cost may still take in it, of a
   * part of at least `least` points; `room` may be negative.
   */
  countIn(frame: Frame, gateways: number, cost?: number, least?: number) {
    const stored = this.stored.pointsIn(frame)
    const first = this.#firstAfter(frame.horizonUs)
    const own = first === undefined ? 0 : this.#total - first.before
    return { used: stored + own, room: perGateway(frame.limit - stored, gateways, cost, least) - own }
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
    return { calls, sent, number: this.#sent?.merge.number ?? 0, spreadMs: this.#spreadMs }
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
    if (this.#own.length === 0) this.#spreadMs = spreadMs
    const atUs = nowUs + Math.ceil(this.#spreadMs * 1000)
    const last = this.#own.at(-1)
    // Calls of one instant, or of a limit above 1000 of one span, are sent together.
    const isInSpan = last && Math.floor(last.atUs / spanUs) === Math.floor(atUs / spanUs)
    const isPlain = access === undefined && last?.access === undefined
    const isShared = isInSpan && isPlain && last.atUs > horizonUs && !this.#isSent(last)
    if (isShared) this.#own.pop()
    const before = isShared ? last.before : this.#total
    this.#total += cost
    this.#keep({ atUs, calls: this.#total - before, before, access })
    this.#quota = quota
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
    if (!isOver) this.stored.takeBack(cost)
    const back = this.#back
    if (back !== undefined && back.endsAt > endsAt) return
    this.#back = { calls: (back?.endsAt === endsAt ? back.calls : 0) + cost, endsAt }
    this.#quota = quota
  }

  /**
   * Returns the merge to be sent now, with a number for a new one; undefined if there is nothing to
   * send, or it is under way.
   */
  send(number: number): Merge | undefined {
    switch (this.#state) {
      case 'stored':
      case 'sent':
        return undefined
      case 'own':
        this.#sent = this.#nextMerge(number)
        break
      case 'unsure':
        this.#sent!.isUnderWay = true
    }
    return this.#sent!.merge
  }

  #nextMerge(number: number): SentMerge {
    const calls = this.#own.slice(0, MAX_MERGED)
    const last = calls.at(-1)
    const merge = { number, quota: this.#quota!, calls, spreadMs: this.#spreadMs, back: this.#back }
    this.#back = undefined
    return { merge, upTo: last === undefined ? 0 : last.before + last.calls, isUnderWay: true }
  }

  /** Ends the merge under way, and returns the calls that the store has then; it may have others. */
  onAnswer(isMerged: boolean): readonly OwnCall[] {
    // A reset has forgotten the merge.
    if (this.#state !== 'sent') return []
    const sent = this.#sent!
    sent.isUnderWay = false
    if (!isMerged) return []
    const { calls } = sent.merge
    const left = search(0, this.#own.length, (i) => !this.#isSent(this.#own[i]!))
    for (const own of this.#own.splice(0, left)) this.#forget(own)
    this.#sent = undefined
    this.stored.recordMerged(calls.at(-1)?.atUs ?? 0)
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
    if (this.#state === 'sent') return false
    const last = this.#own.at(-1)
    if (last !== undefined && last.atUs > nowUs - this.#quota!.windowMs * 1000) return false
    const refunds = [this.#sent?.merge.back, this.#back]
    if (refunds.some((back) => back !== undefined && back.endsAt > dateMs)) return false
    this.reset()
    return true
  }
}
