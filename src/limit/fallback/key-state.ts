import { search } from '../../runtime/search.ts'
import type { Frame } from '../memory/call-log.ts'
import type { Quota } from '../quota.ts'
import type { Merge, OwnCall, OwnCount } from '../store.ts'
import { perGateway } from './part.ts'
import { StoredCount } from './stored-count.ts'

/**
 * The calls of a key that the store does not have: those that the fallback admitted. Their states,
 * which docs/architecture.md draws:
 *
 * - STORED: there are none.
 * - OWN: `#own`. Each question to the store has their number, which the store adds to its own. A
 *   call that ends is settled here. A turn of the hand-over sends them, as a merge with a number.
 * - SENT: `#sent`, which is under way. Answered: STORED, or OWN if there are more meanwhile. The answer
 *   to a later question may be first to show that the store has it.
 * - UNSURE: `#sent` had no answer, so the store may have them. A turn sends the same merge again,
 *   which the store does only once.
 *
 * From OWN and UNSURE back to STORED, too, when all calls have left the window. A reset forgets the
 * key, in any state.
 */
interface SentMerge {
  readonly merge: Merge
  /** The points of all own calls up to its last. */
  readonly upTo: number
  isUnderWay: boolean
}

/** Own calls, and the points of all own calls before them; both change when a call is settled. */
interface KeptCalls extends OwnCall {
  calls: number
  before: number
}

/** The own calls of a key, since there were any. */
interface Own {
  /** The quota under which they were last counted. */
  quota: Quota
  /** Milliseconds by which their instants are later than the calls. */
  spreadMs: number
  /** Oldest first. Those that began an access are of the key of its limit. */
  readonly calls: KeptCalls[]
}

/** Maximum instants of a merge: more would keep Redis for more than 2 ms. */
const MAX_MERGED = 1000

const NONE: readonly KeptCalls[] = []

/** State of the calls of a key that the fallback admitted: see above. */
type HandOver = 'stored' | 'own' | 'sent' | 'unsure'

/** A key as this gateway knows it: the key of a limit, a proof or an access. Instants are microseconds of the clock. */
export class KeyState {
  readonly key: string
  /** The count of the store at its last answer. */
  readonly stored = new StoredCount()

  #sent: SentMerge | undefined
  #own: Own | undefined
  /**
   * The own calls that began an access, by its key, oldest first: with a token for each call, there
   * are as many as the limit allows.
   */
  #ownOf: Map<string, KeptCalls[]> | undefined
  /** Points of all own calls, also of those that are no longer kept. */
  #total = 0

  constructor(key: string) {
    this.key = key
  }

  /** The quota under which own calls were last counted; undefined if there were none. */
  get quota(): Quota | undefined {
    return this.#own?.quota
  }

  /** Milliseconds by which the instants of own calls are later than the calls. */
  get spreadMs(): number {
    return this.#own?.spreadMs ?? 0
  }

  /** Returns the state of the calls that the fallback admitted. */
  get #state(): HandOver {
    if (this.#sent !== undefined) return this.#sent.isUnderWay ? 'sent' : 'unsure'
    return this.#own !== undefined && this.#own.calls.length > 0 ? 'own' : 'stored'
  }

  /** True while a merge is under way, or had no answer: the store may not have its calls yet. */
  isMerging(): boolean {
    return this.#sent !== undefined
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
    return { calls, sent, number: this.#sent?.merge.number ?? 0, spreadMs: this.spreadMs }
  }

  /** Returns the first own calls after a local instant. */
  #firstAfter(horizonUs: number): KeptCalls | undefined {
    const calls = this.#own?.calls ?? NONE
    return calls[search(0, calls.length, (i) => calls[i]!.atUs > horizonUs)]
  }

  /** Counts a call of this gateway under a quota. */
  admit({ nowUs, horizonUs, spanUs }: Frame, quota: Quota, spreadMs: number): void {
    const { windowMs, cost = 1, access } = quota
    // For the longest possible period: the server's clock may be set back to the one before.
    const goneUs = nowUs - windowMs * 1000
    const own = (this.#own ??= { quota, spreadMs, calls: [] })
    const { calls } = own
    while (calls.length > 0 && calls[0]!.atUs <= goneUs) this.#forget(calls.shift()!)
    // The same for all own calls, so that their instants never decrease.
    if (calls.length === 0) own.spreadMs = spreadMs
    const atUs = nowUs + Math.ceil(own.spreadMs * 1000)
    const last = calls.at(-1)
    // Calls of one instant, or of a limit above 1000 of one span, are sent together.
    const isInSpan = last && Math.floor(last.atUs / spanUs) === Math.floor(atUs / spanUs)
    const isPlain = access === undefined && last?.access === undefined
    const isShared = isInSpan && isPlain && last.atUs > horizonUs && !this.#isSent(last)
    if (isShared) calls.pop()
    const before = isShared ? last.before : this.#total
    this.#total += cost
    const kept = { atUs, calls: this.#total - before, before, access }
    calls.push(kept)
    if (access !== undefined) this.#keepAccess(access.key, kept)
    own.quota = quota
  }

  #keepAccess(key: string, own: KeptCalls): void {
    this.#ownOf ??= new Map()
    const same = this.#ownOf.get(key)
    if (same === undefined) this.#ownOf.set(key, [own])
    else same.push(own)
  }

  /** Removes calls, which are no longer in `#own`, from those of their access. */
  #forget(own: KeptCalls): void {
    if (own.access === undefined) return
    const { key } = own.access
    const same = this.#ownOf?.get(key) ?? []
    // The oldest or the newest, as calls leave `#own` at its ends.
    if (same[0] === own) same.shift()
    else same.pop()
    if (same.length === 0) this.#ownOf?.delete(key)
  }

  /** True if calls are in a merge that the store may have. */
  #isSent({ before }: KeptCalls): boolean {
    return this.#sent !== undefined && before < this.#sent.upTo
  }

  /**
   * Corrects the points of an own call, which was admitted at a local instant and may share its entry
   * for `lateUs`; returns false if the store has it, or may have it.
   */
  settleOwn(points: number, admittedUs: number, lateUs: number): boolean {
    const calls = this.#own?.calls ?? []
    const atUs = admittedUs + Math.ceil(this.spreadMs * 1000)
    const index = search(0, calls.length, (i) => calls[i]!.atUs >= atUs)
    const own = calls[index]
    if (own === undefined || own.atUs > atUs + lateUs || this.#isSent(own)) return false
    const change = Math.max(points, -own.calls)
    own.calls += change
    for (const later of calls.slice(index + 1)) later.before += change
    this.#total += change
    if (own.calls === 0) calls.splice(index, 1)
    return true
  }

  /**
   * Returns the merge to be sent now, with a number for a new one; undefined if there is nothing to
   * send, or it is under way.
   */
  send(number: number): Merge | undefined {
    if (this.#state === 'sent') return undefined
    // OWN becomes SENT, and UNSURE does again; STORED stays.
    this.#sent ??= this.#nextMerge(number)
    if (this.#sent !== undefined) this.#sent.isUnderWay = true
    return this.#sent?.merge
  }

  /** Returns the merge of the oldest own calls; undefined if there are none. */
  #nextMerge(number: number): SentMerge | undefined {
    if (this.#own === undefined) return undefined
    const { quota, spreadMs } = this.#own
    const calls = this.#own.calls.slice(0, MAX_MERGED)
    const last = calls.at(-1)
    if (last === undefined) return undefined
    return { merge: { number, quota, calls, spreadMs }, upTo: last.before + last.calls, isUnderWay: true }
  }

  /** Ends an attempt to send the merge, which had no answer: the store may have its calls. */
  onNoAnswer(): void {
    // A reset has forgotten the merge, or another answer has shown that the store has it.
    if (this.#sent !== undefined) this.#sent.isUnderWay = false
  }

  /**
   * Forgets the own calls of a merge that the store has, by its answer or that to another question;
   * returns them. None if they are known to be there, or a reset has forgotten them.
   */
  onMerged(number: number): readonly OwnCall[] {
    if (this.#sent?.merge.number !== number) return []
    const { calls } = this.#sent.merge
    const kept = this.#own?.calls ?? []
    const left = search(0, kept.length, (i) => !this.#isSent(kept[i]!))
    for (const own of kept.splice(0, left)) this.#forget(own)
    this.#sent = undefined
    const points = calls.reduce((sum, own) => sum + own.calls, 0)
    this.stored.recordMerged(calls.at(-1)!.atUs, points)
    return calls
  }

  /** Forgets all own calls. */
  reset(): void {
    this.#own?.calls.splice(0)
    this.#ownOf = undefined
    this.#sent = undefined
  }

  /**
   * Forgets own calls if all have left the window at a local instant; returns true if there are none
   * then.
   */
  expire(nowUs: number): boolean {
    if (this.#state === 'sent') return false
    if (this.#own !== undefined) {
      const last = this.#own.calls.at(-1)
      if (last !== undefined && last.atUs > nowUs - this.#own.quota.windowMs * 1000) return false
    }
    this.reset()
    return true
  }
}
