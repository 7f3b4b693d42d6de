import { type Clock, epochOf } from '../../runtime/clock.ts'
import type { Quota } from '../limit.ts'
import { add, type CallLog, callsOf, createCallLog, dropUpTo, viewAt } from '../memory/call-log.ts'
import { createKeys } from './keys.ts'
import { growsAt, type Known, perGateway, roomAt } from './known.ts'
import { type Addition, type Allowance, allowanceOf, type Charge } from '../store.ts'

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
  spreadMsOf: (key: string) => number,
  isTracked: (quota: Quota) => boolean,
) {
  const epochMs = epochOf(clock)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  const keys = createKeys()

  function record(
    known: Known,
    { allowances, localMs = clock.now() }: Charge,
    i: number,
    wasCharged: boolean,
  ): void {
    const { limit, used, resetAfterMs, windowMs } = allowances[i]!
    const at = Math.round(localMs * 1000)
    known.used = used
    // Above the limit, which was lowered, all calls in excess leave together with the first.
    known.rest = Math.max(0, Math.min(used, limit) - 1)
    known.firstAt = at + Math.ceil((resetAfterMs - windowMs) * 1000)
    if (wasCharged || known.lastAt + windowMs * 1000 <= at) known.lastAt = at
  }

  /** Stops keeping a key whose own calls have left the window, or are added. */
  function release(known: Known): void {
    const { quota, own, adding } = known
    if (own === undefined || adding !== undefined) return
    if (viewAt(own, quota.windowMs * 1000, nowUs()).used > 0) return
    known.own = undefined
    keys.release(known)
  }

  function allowance(known: Known, quota: Quota, gateways: number, at: number, admitted: boolean): Allowance {
    const limit = perGateway(quota.limit, gateways)
    const remaining = Math.max(0, roomAt(at, known, quota, gateways))
    const grows = growsAt(at, known, quota, gateways)
    const used = limit - remaining
    return allowanceOf({ ...quota, limit }, admitted, used, epochMs(grows / 1000), (grows - at) / 1000)
  }

  /** Counts a call of this gateway, at the instant from which its callers have to wait: Redis may take it for that late. */
  function admit(known: Known, quota: Quota, at: number): void {
    const { key, limit, windowMs } = quota
    known.quota = quota
    if (known.own === undefined) {
      known.own = createCallLog()
      // The same for all calls of a log: a call that is counted further ahead than others would drop those still in the window.
      known.spreadMs = Math.max(MIN_SPREAD_MS, spreadMsOf(key))
    }
    add(known.own, limit, windowMs * 1000, at + Math.ceil(known.spreadMs * 1000))
    keys.keep(known)
  }

  function decide(quotas: readonly Quota[], gateways: number, charging: boolean): Charge {
    const at = nowUs()
    const found = quotas.map((quota) => {
      const known = keys.know(quota)
      return { quota, known, hasRoom: roomAt(at, known, quota, gateways) > 0 }
    })
    const admitted = found.every(({ quota, hasRoom }) => hasRoom || quota.shadow)
    const allowances = found.map(({ quota, known, hasRoom }) => {
      if (charging && admitted && hasRoom) admit(known, quota, at)
      return allowance(known, quota, gateways, at, hasRoom)
    })
    for (const { known } of found) release(known)
    return { admitted, allowances, mode: 'local', decidedAt: epochMs(at / 1000) }
  }

  /** Returns the addition of the own calls of a key to the store. */
  function additionOf(known: Known, own: CallLog): Addition {
    const { total } = own
    const calls = callsOf(own).map(([atUs, calls]) => [atUs / 1000, calls] as const)
    return {
      quota: known.quota,
      calls,
      spreadMs: known.spreadMs,
      onEnd(charge) {
        known.adding = undefined
        if (charge !== undefined) {
          dropUpTo(own, total)
          known.lastAt = Math.max(known.lastAt, calls.at(-1)![0] * 1000)
          record(known, charge, 0, false)
        }
        release(known)
      },
    }
  }

  return {
    /** Charges this gateway's fraction of each quota, at least one call; all of them or none. */
    charge: (quotas: readonly Quota[], gateways: number): Charge => decide(quotas, gateways, true),
    peek: (quotas: readonly Quota[], gateways: number) => decide(quotas, gateways, false).allowances,

    /** Records an answer of the store. */
    answered(quotas: readonly Quota[], charge: Charge): void {
      for (let i = 0; i < quotas.length; i++) {
        const quota = quotas[i]!
        if (isTracked(quota)) record(keys.know(quota), charge, i, charge.admitted)
      }
    },

    /**
     * Returns the end of a question with which own calls of these keys are being added, with its error if it failed; or `late`
     * after its timeout. Until they are added, the store must not decide.
     */
    adding(quotas: readonly Quota[]): Known['adding'] {
      if (!keys.hasKept()) return undefined
      return keys.kept(quotas).find(({ adding }) => adding !== undefined)?.adding
    },
    /** Asks the store a question, to which the own calls of these keys are added. */
    ask<Answer>(
      quotas: readonly Quota[],
      question: (additions: readonly Addition[]) => Promise<Answer>,
    ): Promise<Answer> {
      if (!keys.hasKept()) return question([])
      const pending = keys.kept(quotas)
      const answer = question(pending.map((known) => additionOf(known, known.own!)))
      for (const known of pending) {
        const end: Promise<Error | undefined> = answer
          .then(noop, (error: Error) => error)
          .then((error) => {
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
        const { quota, own, adding } = known
        if (own === undefined || adding !== undefined || instants >= MAX_ADDED || !isWanted(quota)) continue
        instants += own.slots.length / 2 - own.first
        found.push(quota)
      }
      return found
    },
    reset: keys.reset,
  }
}

const noop = (): undefined => undefined
