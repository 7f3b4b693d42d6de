import type { Quota } from './limit.ts'
import type { Allowance } from './store.ts'

/** Longest that the store is not asked again, so that a reset or a raised limit elsewhere is seen. */
const MAX_MS = 1000
/** So often in that time is the store asked though a key is known to be full, lest another limit of the call have a longer wait. */
const MAX_DOUBTS = 16

/** What a store said of a key, within the last second; times are on the limiter's own clock. */
interface Known {
  readonly allowance: Allowance
  /** When the store was asked: its waits began no earlier. */
  readonly askedAtMs: number
  /** When its answer had come: its waits began no later. */
  readonly answeredAtMs: number
  readonly doubts: Doubts
}

/** How often the store was asked, since when, though a key was known to be full. */
interface Doubts {
  count: number
  sinceMs: number
}

/** The refusals known to hold still: bounded, oldest dropped first. */
export interface Refusals {
  /**
   * What is known of these quotas but the shadow ones, with waits counted from now: where one is known to refuse, and no other
   * can have a longer wait. Undefined where the store is to be asked.
   */
  recall(quotas: readonly Quota[], nowMs: number): readonly Allowance[] | undefined
  /** Takes note of what a store said that was asked at `askedAtMs` and has just answered; `allowances` are in the order of `quotas`. */
  remember(
    quotas: readonly Quota[],
    answer: { readonly admitted: boolean; readonly allowances: readonly Allowance[] },
    askedAtMs: number,
    nowMs: number,
  ): void
  forget(): void
  /** Changes with every `forget`. */
  era(): number
}

/** Remembers up to `max` keys: those that an admitted call filled, and all of a refused one. */
export function createRefusals(max: number): Refusals {
  const keys = new Map<string, Known>()
  let era = 0

  /** All are kept for a second at most, so the stale ones come first. */
  function makeRoom(nowMs: number): void {
    for (const [key, { askedAtMs }] of keys) {
      if (nowMs - askedAtMs < MAX_MS && keys.size < max) return
      keys.delete(key)
    }
  }

  function known({ key, limit, windowMs }: Quota, nowMs: number): Known | undefined {
    const one = keys.get(key)
    if (one === undefined || nowMs - one.askedAtMs >= MAX_MS) return undefined
    if (one.allowance.limit !== limit || one.allowance.windowMs !== windowMs) return undefined
    return one.allowance.remaining > 0 || isFull(one, nowMs) ? one : undefined
  }

  return {
    recall(quotas, nowMs) {
      if (keys.size === 0) return undefined
      let longest: Known | undefined
      let doubtfulMs = 0
      for (const quota of quotas) {
        if (quota.shadow) continue
        const one = known(quota, nowMs)
        if (one === undefined) doubtfulMs = Math.max(doubtfulMs, quota.windowMs)
        else if (longest === undefined || waitMs(one, nowMs) > waitMs(longest, nowMs)) longest = one
      }
      if (longest === undefined || longest.allowance.remaining > 0) return undefined
      if (doubtfulMs > waitMs(longest, nowMs) && mayDoubt(longest, nowMs)) return undefined
      return quotas.flatMap((quota) => {
        const one = quota.shadow ? undefined : known(quota, nowMs)
        return one === undefined ? [] : [asOf(one, nowMs)]
      })
    },
    remember(quotas, { admitted, allowances }, askedAtMs, nowMs) {
      if (max === 0) return
      for (const [i, { key, shadow }] of quotas.entries()) {
        const allowance = allowances[i]!
        if (shadow || (admitted && allowance.remaining > 0)) {
          // A call was charged: what was known is so no more.
          if (admitted && keys.size > 0) keys.delete(key)
          continue
        }
        const doubts = keys.get(key)?.doubts ?? { count: 0, sinceMs: askedAtMs }
        keys.delete(key)
        makeRoom(askedAtMs)
        keys.set(key, { allowance, askedAtMs, answeredAtMs: nowMs, doubts })
      }
    },
    forget() {
      keys.clear()
      era++
    },
    era: () => era,
  }
}

/** Is the next call sure not to pass? */
function isFull({ allowance, askedAtMs }: Known, nowMs: number): boolean {
  return allowance.limit === 0 || askedAtMs + allowance.retryAfterMs > nowMs
}

/** Milliseconds after which the next call of a key is sure to pass; where nothing ever passes, a window from now. */
function waitMs({ allowance, answeredAtMs }: Known, nowMs: number): number {
  return allowance.limit === 0 ? allowance.windowMs : answeredAtMs + allowance.retryAfterMs - nowMs
}

function asOf(one: Known, nowMs: number): Allowance {
  const { allowance, answeredAtMs } = one
  const pastMs = nowMs - answeredAtMs
  if (allowance.remaining > 0) {
    return { ...allowance, resetAfterMs: Math.max(0, allowance.resetAfterMs - pastMs) }
  }
  const wait = waitMs(one, nowMs)
  const resetAt = allowance.limit === 0 ? Math.floor(allowance.resetAt + pastMs) : allowance.resetAt
  return { ...allowance, admitted: false, resetAt, resetAfterMs: wait, retryAfterMs: wait }
}

function mayDoubt({ doubts }: Known, nowMs: number): boolean {
  if (nowMs - doubts.sinceMs >= MAX_MS) {
    doubts.count = 0
    doubts.sinceMs = nowMs
  }
  return doubts.count++ < MAX_DOUBTS
}
