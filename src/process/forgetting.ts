import type { Activity } from '../admin/overview/callers.ts'
import type { Usage } from '../gateway/usage.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'

/** Maximum callers whose decisions are dropped one by one: each is compared with all rows of the table. */
const MAX_ONE_BY_ONE = 100

/** Drops what this process remembers of earlier decisions, which a change of limits or counters makes untrue. */
export interface Forgetting {
  /** Drops the cached answers of the store: the limits of the configuration have changed. */
  forgetCaches(): void
  /** Drops the cached answers, and the decisions about these callers: their overrides have changed, or counters were reset. */
  forgetCallers(callers: readonly CountedCaller[]): void
  /** Drops the cached answers, and the decisions about all callers: what was refused may pass now. */
  forgetAllCallers(): void
}

/** `usage` returns the usage in force, which a reload replaces. */
export function createForgetting(limiter: Limiter, usage: () => Usage, activity: Activity): Forgetting {
  function forgetCaches(): void {
    limiter.forget()
    usage().forget()
  }
  function forgetAllCallers(): void {
    forgetCaches()
    activity.forgetAll()
  }
  return {
    forgetCaches,
    forgetAllCallers,
    forgetCallers(callers) {
      // For many callers, dropping all decisions takes less than finding theirs.
      if (callers.length > MAX_ONE_BY_ONE) return forgetAllCallers()
      forgetCaches()
      for (const caller of callers) activity.forget(caller)
    },
  }
}
