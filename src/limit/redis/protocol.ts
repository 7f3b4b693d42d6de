import { isAccess, type Quota } from '../limit.ts'
import { type Addition, allowanceOf, type Charge, DamagedKeyError } from '../store.ts'
import type { ServerClocks } from './deadlines.ts'

/** A decision, or an addition, in a batch. */
export interface Asked {
  /** The first number of its rule for charge.lua. */
  readonly action: typeof READ | typeof CHARGE | typeof ADD
  readonly quotas: readonly Quota[]
  readonly addition?: Addition
  readonly onEnd: (outcome: Charge | Error) => void
}
export const [READ, CHARGE, ADD] = [0, 1, 2] as const

const [SHADOW, IS_ACCESS, CALENDAR] = [1, 2, 4] as const

/** Returns the rule of charge.lua; `nowMs` is the server's clock. */
export function ruleOf(asked: Asked, clocks: ServerClocks, server: string, nowMs: number): string {
  const { action, quotas, addition } = asked
  const { calls = [], spreadMs = 0, back } = addition ?? {}
  let rule = String(action)
  for (const quota of quotas) {
    const { limit, windowMs, shadow, calendar } = quota
    const flags = (shadow ? SHADOW : 0) + (isAccess(quota) ? IS_ACCESS : 0)
    if (calendar === undefined) rule += ` ${limit} ${windowMs * 1000} ${flags}`
    else {
      const { startMs, endMs } = calendar.periodAt(nowMs)
      rule += ` ${limit} ${(endMs - startMs) * 1000} ${flags + CALENDAR} ${startMs * 1000}`
    }
  }
  for (const [atMs, count] of calls) {
    // Never earlier than the call was made; no later than the end of the caller's wait assumes, if the clock is still known as well.
    const atUs = Math.max(clocks.at(server, atMs, 'earliest'), clocks.at(server, atMs - spreadMs, 'latest'))
    rule += ` ${atUs} ${count}`
  }
  if (back === undefined) return rule
  const { startMs, endMs } = quotas[0]!.calendar!.periodAt(nowMs)
  return endMs === back.endsAt ? `${rule} ${startMs * 1000} ${-back.calls}` : rule
}

/** Returns the range of a server's clock, in microseconds, in which the periods of all calendars are those that contain `nowMs`. */
export function periodsAt(batch: readonly Asked[], nowMs: number): [fromUs: number, untilUs: number] {
  let [fromUs, untilUs] = [0, Infinity]
  for (const { quotas } of batch)
    for (const { calendar } of quotas) {
      if (calendar === undefined) continue
      const { startMs, endMs } = calendar.periodAt(nowMs)
      fromUs = Math.max(fromUs, startMs * 1000)
      untilUs = Math.min(untilUs, endMs * 1000 - 1)
    }
  return [fromUs, untilUs]
}

export const additionOf = (addition: Addition): Asked => ({
  action: ADD,
  quotas: [addition.quota],
  addition,
  onEnd: (outcome) => addition.onEnd(outcome instanceof Error || !outcome.admitted ? undefined : outcome),
})

/** Reads the reply of charge.lua to a batch, which was decided at `localMs` of the local clock or before. */
export function chargesOf(batch: readonly Asked[], numbers: readonly number[], localMs: number) {
  const nowUs = numbers[0]!
  let at = 1
  return batch.map(({ quotas }, i): Charge | DamagedKeyError => {
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
