import type { Quota } from './limit.ts'
import type { Allowance } from './store.ts'

/** Longest that the store is not asked again, so that a reset or a raised limit elsewhere is seen. */
const MAX_MS = 1000

interface Refusal {
  readonly allowance: Allowance
  /** Until when nothing passes and the store need not be asked; on the limiter's own clock. */
  readonly untilMs: number
  /** When the next call can pass; on the same clock. */
  readonly passesAtMs: number
}

/** The refusals known to hold still: bounded, oldest dropped first. */
export interface Refusals {
  /** The refusing ones of these quotas, with waits counted from now; undefined where none is known to refuse. */
  recall(quotas: readonly Quota[], nowMs: number): readonly Allowance[] | undefined
  /** Takes note of what a store refused that was asked at `askedAtMs`; `allowances` are in the order of `quotas`. */
  remember(quotas: readonly Quota[], allowances: readonly Allowance[], askedAtMs: number): void
  forget(): void
  /** Changes with every `forget`. */
  era(): number
}

/** Remembers up to `max` refusals. */
export function createRefusals(max: number): Refusals {
  const refusals = new Map<string, Refusal>()
  let era = 0

  /** All are kept for a second at most, so the stale ones come first. */
  function makeRoom(nowMs: number): void {
    for (const [key, { untilMs }] of refusals) {
      if (untilMs > nowMs && refusals.size < max) return
      refusals.delete(key)
    }
  }

  return {
    recall(quotas, nowMs) {
      if (refusals.size === 0) return undefined
      let found: Allowance[] | undefined
      for (const { key, limit, windowMs, shadow } of quotas) {
        const refusal = shadow ? undefined : refusals.get(key)
        if (refusal === undefined) continue
        const { allowance } = refusal
        if (refusal.untilMs <= nowMs || allowance.limit !== limit || allowance.windowMs !== windowMs) {
          refusals.delete(key)
          continue
        }
        const waitMs = refusal.passesAtMs - nowMs
        found ??= []
        found.push({ ...allowance, resetAfterMs: waitMs, retryAfterMs: waitMs })
      }
      return found
    },
    remember(quotas, allowances, askedAtMs) {
      for (const [i, { key, shadow }] of quotas.entries()) {
        const allowance = allowances[i]!
        if (allowance.admitted || shadow || max === 0) continue
        refusals.delete(key)
        makeRoom(askedAtMs)
        const passesAtMs = askedAtMs + allowance.retryAfterMs
        refusals.set(key, { allowance, passesAtMs, untilMs: Math.min(passesAtMs, askedAtMs + MAX_MS) })
      }
    },
    forget() {
      refusals.clear()
      era++
    },
    era: () => era,
  }
}
