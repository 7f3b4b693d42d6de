import type { Quota } from '../../src/limit/limit.ts'

/** The right answers of a store for one quota; ranges are [min, max]. Spans are microseconds. */
export interface Verdict {
  readonly room: readonly boolean[]
  readonly remaining: readonly [number, number]
  readonly growsAfterUs: readonly [number, number]
}

/** The instants of a key's calls: those that a store must count, those that it may count, and how much too long it may count a call. */
interface Log {
  readonly sure: readonly number[]
  readonly likely: readonly number[]
  readonly grainUs: number
}

/**
 * The specification of a store: a naive log with one number for each admitted call of a key, filtered for every decision. For
 * limits of up to 1000 calls there is one right answer. Above, a store may count a call for a thousandth of a window too long:
 * the judge gets the store's answer, and returns the ranges that it must lie in.
 */
export class Judge {
  readonly #logs = new Map<string, Log>()

  /** Judges one decision; `rooms` are the store's answers if each quota has room. */
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
      return { quota, windowUs, now, room, hasRoom: rooms[i]! }
    })
    const admitted = views.every(({ quota, hasRoom }) => hasRoom || quota.shadow)
    const verdicts = views.map(({ quota, windowUs, now, room, hasRoom }) => {
      let log = now
      if (charging && admitted && hasRoom) {
        const at = Math.max(nowUs, now.sure.at(-1) ?? 0)
        log = { ...now, sure: [...now.sure, at], likely: [...now.likely, at] }
        this.#logs.set(quota.key, log)
      }
      const { limit } = quota
      const remaining = [limit - log.likely.length, limit - log.sure.length].map((calls) =>
        Math.max(0, calls),
      )
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
  const [sureUs, likelyUs] = [after(sure), after(likely)]
  return [
    Math.max(0, Math.min(sureUs, likelyUs)),
    likely.length === 0 ? 0 : Math.max(sureUs, likelyUs) + grainUs,
  ]
}
