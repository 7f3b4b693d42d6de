import type { Quota } from './quota.ts'
import type { Allowance } from './store.ts'

/**
 * Maximum age of a remembered answer, in milliseconds. Bounds how late a reset or a raised limit at
 * another gateway is noticed.
 */
const MAX_AGE_MS = 1000
/** Maximum remembered keys; the key remembered first is dropped first. */
const MAX_KEYS = 10_000
/** Maximum re-checks of a full key in `MAX_AGE_MS`, which find out if another limit of the call has a longer wait. */
const MAX_RECHECKS = 16

/** An answer of the store for one key. Instants are of the clock. */
interface Answer {
  readonly allowance: Allowance
  /** The cost of the calls that it answers. */
  readonly cost: number
  /** The waits of `allowance` began between `askedAt` and `answeredAt`. */
  readonly askedAt: number
  readonly answeredAt: number
}

/** The remembered answers for one key. */
interface Remembered {
  /** Newest first. Those under other limits of the key, and to calls of other costs, have other waits. */
  readonly answers: readonly Answer[]
  /** Re-checks of the key since an instant. */
  readonly rechecks: { count: number; sinceAt: number }
}

/** True if an answer is that of a limit to a call of this cost. */
const isOf = (name: string, cost: number, answer: Answer): boolean =>
  answer.cost === cost && answer.allowance.name === name

/** Returns a remembered allowance with its waits counted from `at`; undefined if its next call may pass. */
function allowanceAt(at: number, { allowance, askedAt, answeredAt }: Answer, quota: Quota) {
  const { limit, windowMs, calendar, cost = 1 } = quota
  const { remaining, resetAt, retryAfterMs } = allowance
  const resetAfterMs = Math.max(0, allowance.resetAfterMs - (at - answeredAt))
  if (allowance.admitted && remaining > 0) return { ...allowance, resetAfterMs }
  // A full key is remembered until its next call may pass. With a limit of 0, or below the cost,
  // none may: the wait is always a window.
  const isFixed = limit >= cost || calendar !== undefined
  if (isFixed && askedAt + retryAfterMs <= at) return undefined
  const waitMs = isFixed ? resetAfterMs : windowMs
  const nextAt = isFixed ? resetAt : Math.floor(resetAt + at - answeredAt)
  return { ...allowance, admitted: false, resetAt: nextAt, resetAfterMs: waitMs, retryAfterMs: waitMs }
}

/**
 * Remembers the store's answers for full keys, and for the other keys of refused calls: each for a
 * second, or until its next call may pass. All instants are milliseconds of one clock.
 */
export class DenyCache {
  readonly #keys = new Map<string, Remembered>()
  /** When the count of a key was last corrected. The answer to an earlier question is not remembered. */
  readonly #corrected = new Map<string, number>()
  /** When all keys, or too many corrected ones, were last forgotten. */
  #clearedAt = Number.NEGATIVE_INFINITY

  isEmpty(): boolean {
    return this.#keys.size === 0
  }

  /** Returns the remembered allowance of a quota, with its waits counted from `at`; undefined if there is none that holds. */
  lookUp(quota: Quota, at: number): Allowance | undefined {
    const { name, key, limit, windowMs, cost = 1 } = quota
    const answer = this.#keys.get(key)?.answers.find((one) => isOf(name, cost, one))
    if (answer === undefined || at - answer.askedAt >= MAX_AGE_MS) return undefined
    const { allowance } = answer
    // The limit was changed since.
    if (allowance.limit !== limit || allowance.windowMs !== windowMs) return undefined
    return allowanceAt(at, answer, quota)
  }

  /** Counts a re-check of a remembered key; returns false if there were too many. */
  mayRecheck(key: string, at: number): boolean {
    const { rechecks } = this.#keys.get(key)!
    if (at - rechecks.sinceAt >= MAX_AGE_MS) {
      rechecks.count = 0
      rechecks.sinceAt = at
    }
    return rechecks.count++ < MAX_RECHECKS
  }

  /** True if the store was asked after all that this gateway knows to have changed a key. */
  isCurrent(key: string, askedAt: number): boolean {
    return askedAt > this.#clearedAt && askedAt > (this.#corrected.get(key) ?? Number.NEGATIVE_INFINITY)
  }

  /** Remembers the answer that an admitted call used up the key, in place of all earlier ones. */
  rememberFull(key: string, answer: Answer): void {
    this.#set(key, [answer], answer.askedAt)
  }

  /** Remembers the answer for a key of a refused call, in addition to those of its other limits and costs. */
  rememberRefused(key: string, answer: Answer): void {
    const earlier = this.#keys.get(key)?.answers ?? []
    const others = earlier.filter((one) => !isOf(answer.allowance.name, answer.cost, one))
    this.#set(key, [answer, ...others], answer.askedAt)
  }

  #set(key: string, answers: readonly Answer[], askedAt: number): void {
    const rechecks = this.#keys.get(key)?.rechecks ?? { count: 0, sinceAt: askedAt }
    this.#keys.delete(key)
    if (this.#keys.size === MAX_KEYS) this.#keys.delete(this.#keys.keys().next().value!)
    this.#keys.set(key, { answers, rechecks })
  }

  /** Drops what is remembered of a key that has had another call. */
  drop(key: string): void {
    this.#keys.delete(key)
  }

  /** Forgets a key whose count is corrected now, and the answers to questions that were asked before. */
  forget(key: string, at: number): void {
    this.#keys.delete(key)
    if (this.#corrected.size === MAX_KEYS) {
      this.#corrected.clear()
      this.#clearedAt = at
    }
    this.#corrected.set(key, at)
  }

  /** Forgets all keys, and the answers to questions that were asked before. */
  clear(at: number): void {
    this.#keys.clear()
    this.#clearedAt = at
  }
}
