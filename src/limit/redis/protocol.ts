import type { Quota } from '../limit.ts'
import { type Addition, allowanceOf, type Charge, DamagedKeyError } from '../store.ts'
import type { ServerClocks } from './deadlines.ts'

/** A decision, or an addition, in a batch. */
export interface Asked {
  /** The first number of its rule for charge.lua. */
  readonly action: typeof READ | typeof CHARGE | typeof ADD
  readonly quotas: readonly Quota[]
  readonly calls?: Addition['calls']
  readonly spreadMs?: number
  readonly onEnd: (outcome: Charge | Error) => void
}
export const [READ, CHARGE, ADD] = [0, 1, 2] as const

/** Returns the rule of charge.lua. */
export function ruleOf(
  { action, quotas, calls, spreadMs = 0 }: Asked,
  clocks: ServerClocks,
  server: string,
): string {
  let rule = String(action)
  for (const { limit, windowMs, shadow } of quotas) rule += ` ${limit} ${windowMs * 1000} ${Number(shadow)}`
  for (const [atMs, count] of calls ?? []) {
    // Never earlier than the call was made; no later than the end of the caller's wait assumes, if the clock is still known as well.
    const atUs = Math.max(clocks.at(server, atMs, 'earliest'), clocks.at(server, atMs - spreadMs, 'latest'))
    rule += ` ${atUs} ${count}`
  }
  return rule
}

export const additionOf = ({ quota, calls, spreadMs, onEnd }: Addition): Asked => ({
  action: ADD,
  quotas: [quota],
  calls,
  spreadMs,
  onEnd: (outcome) => onEnd(outcome instanceof Error || !outcome.admitted ? undefined : outcome),
})

/** Reads the reply of charge.lua to a batch, which was decided at `localMs` of the local clock or before. */
export function chargesOf(
  batch: readonly Asked[],
  numbers: readonly number[],
  localMs: number,
): readonly (Charge | DamagedKeyError)[] {
  const nowUs = numbers[0]!
  let at = 1
  return batch.map(({ quotas }, i) => {
    const admitted = numbers[at++] === 1
    let damaged: string | undefined
    const allowances = quotas.map((quota) => {
      const room = numbers[at++]!
      const used = numbers[at++]!
      const growsAtUs = numbers[at++]!
      if (room === -1) damaged ??= quota.key
      return allowanceOf(quota, room === 1, used, growsAtUs / 1000, (growsAtUs - nowUs) / 1000)
    })
    if (damaged !== undefined) return new DamagedKeyError(damaged)
    // All decisions of a batch share one instant; a microsecond each keeps their order.
    return { admitted, allowances, mode: 'store', decidedAt: (nowUs + i) / 1000, localMs }
  })
}
