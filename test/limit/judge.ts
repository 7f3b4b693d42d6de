import type { Quota } from '../../src/limit/limit.ts'

/** What a store may say of one quota, from the least to the most. Spans are microseconds. */
export interface Verdict {
  readonly room: readonly boolean[]
  readonly remaining: readonly [number, number]
  readonly growsAfterUs: readonly [number, number]
}

/** The calls of a key, each with its own instant: those that its store surely holds, those that it may hold; and how long one may stay too long. */
interface Log {
  readonly sure: readonly number[]
  readonly likely: readonly number[]
  readonly grainUs: number
}

/**
 * A naive log: every admitted call of a key as one number, filtered anew at each question. The specification of a store.
 * Up to 1000 calls per window a store has one right answer; above, it may keep each call for a thousandth of a window
 * longer, never shorter: it is told what the store answered, and says between what that must lie.
 */
export class Judge {
  readonly #logs = new Map<string, Log>()

  /** Judges one decision: `rooms` is what the store said of each quota's room. */
  decide(
    quotas: readonly Quota[],
    nowUs: number,
    charging: boolean,
    rooms: readonly boolean[],
  ): { readonly admitted: boolean; readonly verdicts: readonly Verdict[] } {
    const views = quotas.map((quota, i) => {
      const windowUs = quota.windowMs * 1000
      const spanUs = quota.limit > 1000 ? Math.ceil(windowUs / 1000) : 0
      let log = this.#logs.get(quota.key) ?? { sure: [], likely: [], grainUs: 0 }
      if (log.sure.length > 0 && log.sure.at(-1)! - nowUs > windowUs) {
        log = { ...log, sure: log.sure.map(() => nowUs), likely: log.likely.map(() => nowUs) }
        if (charging) this.#logs.set(quota.key, log)
      }
      const grainUs = Math.max(spanUs, log.grainUs)
      const now = inWindow(log, windowUs, grainUs, nowUs)
      const room = [...new Set([now.sure, now.likely].map(({ length }) => length < quota.limit))]
      return { quota, windowUs, now, room, said: rooms[i]! }
    })
    const admitted = views.every(({ quota, said }) => said || quota.shadow)
    const verdicts = views.map(({ quota, windowUs, now, room, said }) => {
      let log = now
      if (charging && admitted && said) {
        const at = Math.max(nowUs, now.sure.at(-1) ?? 0)
        log = { ...now, sure: [...now.sure, at], likely: [...now.likely, at] }
        this.#logs.set(quota.key, log)
      }
      const { limit } = quota
      const remaining = [limit - log.likely.length, limit - log.sure.length].map((left) => Math.max(0, left))
      return {
        room,
        remaining: remaining as [number, number],
        growsAfterUs: growsAfter(log, limit, windowUs, nowUs),
      }
    })
    return { admitted, verdicts }
  }
}

function inWindow({ sure, likely }: Log, windowUs: number, grainUs: number, nowUs: number): Log {
  return {
    sure: sure.filter((at) => at > nowUs - windowUs),
    likely: likely.filter((at) => at > nowUs - windowUs - grainUs),
    grainUs,
  }
}

function growsAfter(
  { sure, likely, grainUs }: Log,
  limit: number,
  windowUs: number,
  nowUs: number,
): [number, number] {
  if (limit === 0) return [windowUs, windowUs]
  const after = (log: readonly number[]) =>
    log.length === 0 ? 0 : log[Math.max(0, log.length - limit)]! + windowUs - nowUs
  const [one, other] = [after(sure), after(likely)]
  return [Math.max(0, Math.min(one, other)), likely.length === 0 ? 0 : Math.max(one, other) + grainUs]
}
