import { LRUCache } from 'lru-cache'
import { type Clock, epochOf } from '../../runtime/clock.ts'
import { isProof, type Quota } from '../limit.ts'
import { add, type CallLog, callsOf, createCallLog, dropUpTo, viewAt } from '../memory/call-log.ts'
import { growsAt, type Known, perGateway, roomAt } from './known.ts'
import { type Addition, type Allowance, allowanceOf, type Charge } from '../store.ts'

/** Maximum keys, and proofs, whose last answer of the store is kept. */
const MAX_ANSWERS = 20_000

/**
 * Creates the counters that this process uses while the store does not answer. Each gateway may admit an equal fraction of the
 * calls that the store last reported as remaining. It keeps the calls, with their instants, until they are added to the store.
 */
export function createLocalCounters(clock: Clock, isTracked: (quota: Quota) => boolean) {
  const epochMs = epochOf(clock)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  const limits = new LRUCache<string, Known>({ max: MAX_ANSWERS })
  const proofs = new LRUCache<string, Known>({ max: MAX_ANSWERS })
  /** The keys with own calls, and the proofs that the store is asked for: they must not be evicted. */
  const kept = new Map<string, Known>()

  function know(quota: Quota): Known {
    const { key } = quota
    const known = (kept.size > 0 && kept.get(key)) || (isProof(quota) ? proofs : limits).get(key)
    if (known !== undefined) {
      known.quota = quota
      return known
    }
    const created = { quota, used: 0, firstAt: 0, lastAt: 0, asked: 0, own: undefined, adding: undefined }
    // A proof is asked for once, so it is kept only until the answer.
    if (isProof(quota)) kept.set(key, created)
    else limits.set(key, created)
    return created
  }

  function record(known: Known, { used, resetAfterMs, windowMs }: Allowance, wasCharged: boolean): void {
    const at = nowUs()
    known.used = used
    known.firstAt = at + Math.ceil((resetAfterMs - windowMs) * 1000)
    if (wasCharged || known.lastAt + windowMs * 1000 <= at) known.lastAt = at
  }

  /** Stops keeping a key that has no calls of its own any more. */
  function release(known: Known): void {
    const { quota, own, asked, adding } = known
    if (own !== undefined && viewAt(own, quota.windowMs * 1000, nowUs()).used === 0) known.own = undefined
    if (known.own !== undefined || asked > 0 || adding !== undefined || kept.get(quota.key) !== known) return
    kept.delete(quota.key)
    if (own !== undefined) (isProof(quota) ? proofs : limits).set(quota.key, known)
  }

  function allowance(known: Known, quota: Quota, gateways: number, at: number, admitted: boolean): Allowance {
    const limit = perGateway(quota.limit, gateways)
    const remaining = Math.max(0, roomAt(at, known, quota, gateways))
    const grows = growsAt(at, known, quota, gateways)
    const used = limit - remaining
    return allowanceOf({ ...quota, limit }, admitted, used, epochMs(grows / 1000), (grows - at) / 1000)
  }

  function decide(quotas: readonly Quota[], gateways: number, charging: boolean): Charge {
    const at = nowUs()
    const found = quotas.map((quota) => {
      const known = know(quota)
      return { quota, known, hasRoom: roomAt(at, known, quota, gateways) > 0 }
    })
    const admitted = found.every(({ quota, hasRoom }) => hasRoom || quota.shadow)
    const allowances = found.map(({ quota, known, hasRoom }) => {
      if (charging && admitted && hasRoom) {
        add((known.own ??= createCallLog()), quota.limit, quota.windowMs * 1000, at)
        kept.set(quota.key, known)
      }
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
      onEnd(answer) {
        known.adding = undefined
        if (answer !== undefined) {
          dropUpTo(own, total)
          known.lastAt = Math.max(known.lastAt, calls.at(-1)![0] * 1000)
          record(known, answer, false)
        }
        release(known)
      },
    }
  }

  return {
    /** Charges this gateway's fraction of each quota, at least one call; all of them or none. */
    charge: (quotas: readonly Quota[], gateways: number): Charge => decide(quotas, gateways, true),
    peek: (quotas: readonly Quota[], gateways: number) => decide(quotas, gateways, false).allowances,

    /** Notes a question that may charge the store, and returns the function that notes its answer, or its failure. */
    asking(quotas: readonly Quota[]): (charge?: Charge) => void {
      const asked = quotas.map((quota) => (isTracked(quota) ? know(quota) : undefined))
      for (const known of asked) if (known !== undefined) known.asked++
      return (charge) => {
        for (let i = 0; i < asked.length; i++) {
          const known = asked[i]
          if (known === undefined) continue
          known.asked--
          if (charge !== undefined) record(known, charge.allowances[i]!, charge.admitted)
          if (kept.size > 0) release(known)
        }
      }
    },

    /**
     * Returns the end of a question with which own calls of these keys are being added, or `late` after its timeout. Until they
     * are added, the store must not decide.
     */
    adding(quotas: readonly Quota[]): Known['adding'] {
      if (kept.size === 0) return undefined
      for (const { key } of quotas) {
        const adding = kept.get(key)?.adding
        if (adding !== undefined) return adding
      }
      return undefined
    },
    /** Asks the store a question, to which the own calls of these keys are added. */
    ask<Answer>(
      quotas: readonly Quota[],
      question: (additions: readonly Addition[]) => Promise<Answer>,
    ): Promise<Answer> {
      if (kept.size === 0) return question([])
      const pending = quotas.flatMap(({ key }) => kept.get(key) ?? []).filter(({ own }) => own !== undefined)
      const answer = question(pending.map((known) => additionOf(known, known.own!)))
      for (const known of pending) {
        const end: Promise<void> = answer.then(noop, noop).then(() => {
          if (known.adding === end) known.adding = 'late'
        })
        known.adding = end
      }
      return answer
    },
    /** Returns quotas whose own calls are to be added, limits before proofs. */
    pending(): readonly Quota[] {
      const found = [...kept.values()].filter(({ own, adding }) => own !== undefined && adding === undefined)
      for (const known of found) release(known)
      const quotas = found.filter(({ own }) => own !== undefined).map(({ quota }) => quota)
      return [...quotas.filter((quota) => !isProof(quota)), ...quotas.filter(isProof)]
    },
    reset(matches: (key: string) => boolean): void {
      for (const keys of [limits, proofs, kept])
        for (const key of [...keys.keys()]) if (matches(key)) keys.delete(key)
    },
  }
}

const noop = (): void => {}
