import { type Clock, epochOf } from '../../runtime/clock.ts'
import { search } from '../../runtime/hot-path.ts'
import type { Quota } from '../limit.ts'
import { add, callsOf, CallLog, dropUpTo, frameAt, takeBack, usedIn } from '../memory/call-log.ts'
import type { RemoteStore } from './breakers.ts'
import { createKeys } from './keys.ts'
import { countIn, type Known, perGateway, record } from './known.ts'
import { type Addition, type Allowance, allowanceOf, type Charge, settle } from '../store.ts'

/** Maximum instants of calls that are added in each turn of the background. */
const MAX_ADDED = 1000

/** Minimum spread: the clock of the server that gets the calls may be known less well than that of the last, by about a round trip. */
const MIN_SPREAD_MS = 10

/**
 * Creates the counters that this process uses while the store does not answer. Each gateway may admit an equal fraction of the
 * calls that the store last reported as remaining. It keeps the calls, with their instants, until they are added to the store.
 */
export function createLocalCounters(
  clock: Clock,
  { spreadMs, dateAt }: Pick<RemoteStore, 'spreadMs' | 'dateAt'>,
  isTracked: (quota: Quota) => boolean,
) {
  const epochMs = epochOf(clock)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  const keys = createKeys()

  /** Returns the window of a quota at a local instant, by the clock of its server for calendar periods. */
  const frameOf = (quota: Quota, atUs: number) =>
    frameAt(quota, atUs, quota.calendar === undefined ? 0 : dateMs(quota, atUs))
  const dateMs = ({ key }: Quota, atUs = nowUs()): number => dateAt(key, atUs / 1000) || epochMs(atUs / 1000)

  /** Stops keeping a key whose own calls have left the window, or are added. */
  function release(known: Known): void {
    const { quota, own, adding, back } = known
    if (adding !== undefined) return
    if (own !== undefined && usedIn(own, slidingFrame(quota, nowUs())) > 0) return
    if (back !== undefined && back.endsAt > dateMs(quota)) return
    known.own = known.back = undefined
    keys.release(known)
  }

  function allowance(known: Known, quota: Quota, gateways: number, at: number, admitted: boolean): Allowance {
    const roomAt = (atUs: number): number => countIn(frameOf(quota, atUs), known, gateways).room
    const limit = perGateway(quota.limit, gateways)
    const remaining = Math.max(0, roomAt(at))
    const isUnused = remaining === limit && limit > 0
    // Room grows at the end of a calendar period, or when a call leaves: all have left by the end of one window.
    const latest = Math.max(at + quota.windowMs * 1000, known.own?.expiresAtUs ?? 0)
    const { endUs } = frameOf(quota, at)
    const grows = endUs ?? (isUnused ? at : search(at + 1, latest, (later) => roomAt(later) > remaining))
    const resetAt = quota.calendar?.periodAt(dateMs(quota, at)).endMs ?? epochMs(grows / 1000)
    return allowanceOf({ ...quota, limit }, admitted, limit - remaining, resetAt, (grows - at) / 1000)
  }

  /** Counts a call of this gateway, at the instant from which its callers have to wait: Redis may take it for that late. */
  function admit(known: Known, quota: Quota, at: number): void {
    known.quota = quota
    if (known.own === undefined) {
      known.own = new CallLog()
      // The same for all calls of a log: a call that is counted further ahead than others would drop those still in the window.
      known.spreadMs = Math.max(MIN_SPREAD_MS, spreadMs(quota.key))
    }
    add(known.own, slidingFrame(quota, at), at + Math.ceil(known.spreadMs * 1000))
    keys.keep(known)
  }

  function decide(quotas: readonly Quota[], gateways: number, charging: boolean): Charge {
    const at = nowUs()
    const found = quotas.map((quota) => {
      const known = keys.know(quota)
      const { used, room } = countIn(frameOf(quota, at), known, gateways)
      return { quota, known, used, hasRoom: room > 0 }
    })
    const { admitted, settled } = settle(found)
    const allowances = settled.map(({ quota, known, hasRoom, pays }) => {
      if (charging && admitted && pays) admit(known, quota, at)
      return allowance(known, quota, gateways, at, hasRoom)
    })
    for (const { known } of found) release(known)
    return { admitted, allowances, mode: 'local', decidedAt: epochMs(at / 1000) }
  }

  /** Returns the addition of the own calls of a key to the store, and of those to be given back, which are sent once. */
  function additionOf(known: Known): Addition {
    const { quota, own, spreadMs, back } = known
    const total = own?.total ?? 0
    const calls = own === undefined ? [] : callsOf(own).map(([atUs, calls]) => [atUs / 1000, calls] as const)
    known.back = undefined
    return {
      ...{ quota, calls, spreadMs, back },
      onEnd(charge) {
        if (own !== undefined) known.adding = undefined
        if (charge !== undefined) {
          if (own !== undefined) dropUpTo(own, total)
          known.lastAt = Math.max(known.lastAt, (calls.at(-1)?.[0] ?? 0) * 1000)
          record(known, quota, charge.allowances[0]!, charge.localMs ?? clock.now(), false)
        }
        release(known)
      },
    }
  }

  return {
    /** Charges this gateway's fraction of each quota, at least one call; all of them or none. */
    charge: (quotas: readonly Quota[], gateways: number): Charge => decide(quotas, gateways, true),
    peek: (quotas: readonly Quota[], gateways: number) => decide(quotas, gateways, false).allowances,

    /** Records an answer of the store, and returns it. */
    answered(quotas: readonly Quota[], charge: Charge): Charge {
      for (let i = 0; i < quotas.length; i++) {
        const quota = quotas[i]!
        if (!isTracked(quota)) continue
        record(keys.know(quota), quota, charge.allowances[i]!, charge.localMs ?? clock.now(), charge.admitted)
      }
      return charge
    },

    /** Returns the end of the question that adds own calls of these keys, with its error, or `late` after its timeout. Until they are added, the store must not decide. */
    adding(quotas: readonly Quota[]): Known['adding'] {
      if (!keys.hasKept()) return undefined
      return keys.kept(quotas).find(({ adding }) => adding !== undefined)?.adding
    },
    /** Asks the store a question, to which the own calls of these keys are added. */
    ask<Answer>(quotas: readonly Quota[], question: (additions: readonly Addition[]) => Promise<Answer>) {
      if (!keys.hasKept()) return question([])
      const pending = keys.kept(quotas)
      const answer = question(pending.map(additionOf))
      const ended = answer.then(
        () => undefined,
        (error: Error) => error,
      )
      for (const known of pending) {
        // Nobody waits for what is only given back: until then, the store counts too many calls, not too few.
        if (known.own === undefined) continue
        const end: Promise<Error | undefined> = ended.then((error) => {
          if (known.adding === end) known.adding = 'late'
          return error
        })
        known.adding = end
      }
      return answer
    },
    /** Returns the next quotas whose own calls are to be added, limits before proofs; drops calls that have left the window. */
    pending(isWanted: (quota: Quota) => boolean): readonly Quota[] {
      const found: Quota[] = []
      let instants = 0
      for (const known of keys.next()) {
        release(known)
        const { quota, own, back, adding } = known
        const isPending = own !== undefined || back !== undefined
        if (!isPending || adding !== undefined || instants >= MAX_ADDED || !isWanted(quota)) continue
        instants += own === undefined ? 1 : own.slots.length / 2 - own.first
        found.push(quota)
      }
      return found
    },
    /** Gives a call back: one of this gateway's own, as they are all alike, or with the next question for the key. */
    giveBack(quota: Quota, endsAt: number): void {
      const known = keys.know(quota)
      // As far as is known here: the server's clock, which decides, may have been set back.
      const isOver = dateMs(quota) >= endsAt
      const { own, adding, back } = known
      const canTake = !isOver && own !== undefined && adding === undefined
      if (canTake && takeBack(own, frameOf(quota, nowUs()))) return
      known.back = { calls: (back?.endsAt === endsAt ? back.calls : 0) + 1, endsAt }
      if (!isOver) known.used = Math.max(0, known.used - 1)
      known.quota = quota
      keys.keep(known)
    },
    reset: keys.reset,
  }
}

/** Own calls are kept for the longest possible period, and apart, as the server's clock may not be known. */
const slidingFrame = ({ limit, windowMs }: Quota, atUs: number) => frameAt({ limit, windowMs }, atUs, 0)
