import type { Quota } from '../../src/limit/limit.ts'

/** What the judge expects of one quota. Instants and spans are microseconds. */
export interface Verdict {
  readonly room: boolean
  readonly remaining: number
  readonly growsAfterUs: number
}

/** A naive log: every admitted call of a key as one number, filtered anew at each question. The specification of a store. */
export class Judge {
  readonly #logs = new Map<string, readonly number[]>()

  decide(
    quotas: readonly Quota[],
    nowUs: number,
    charging: boolean,
  ): { readonly admitted: boolean; readonly verdicts: readonly Verdict[] } {
    const views = quotas.map((quota) => {
      const windowUs = quota.windowMs * 1000
      const span = quota.limit > 1000 ? Math.ceil(windowUs / 1000) : 1
      let log = this.#logs.get(quota.key) ?? []
      if (log.length > 0 && log.at(-1)! - nowUs > windowUs + span) {
        log = log.map(() => nowUs)
        if (charging) this.#logs.set(quota.key, log)
      }
      const counted = log.filter((at) => at > nowUs - windowUs)
      return { quota, windowUs, span, counted, room: counted.length < quota.limit }
    })
    const admitted = views.every(({ quota, room }) => room || quota.shadow)
    const verdicts = views.map(({ quota, windowUs, span, counted, room }) => {
      let after = counted
      if (charging && admitted && room) {
        const at = Math.max(Math.ceil(nowUs / span) * span, counted.at(-1) ?? 0)
        after = [...counted, at]
        this.#logs.set(quota.key, after)
      }
      return {
        room,
        remaining: Math.max(0, quota.limit - after.length),
        growsAfterUs: growsAfter(after, quota.limit, windowUs, nowUs),
      }
    })
    return { admitted, verdicts }
  }
}

function growsAfter(log: readonly number[], limit: number, windowUs: number, nowUs: number): number {
  if (limit === 0) return windowUs
  if (log.length === 0) return 0
  return log[Math.max(0, log.length - limit)]! + windowUs - nowUs
}
