import type { KeyFilter } from '../key.ts'
import type { Quota } from '../limit.ts'
import { epochOf, SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { type Allowance, allowanceOf, type Charge, settle, type Store } from '../store.ts'
import { add, type CallLog, createCallLog, frameAt, growsAt, takeBack, usedIn } from './call-log.ts'

const SWEEP_EVERY_MS = 1000
const SWEPT_AT_ONCE = 50_000

/** Counters in this process, with the algorithm of charge.lua. Decides synchronously. */
export class MemoryStore implements Store {
  readonly #now: () => number
  readonly #epochMs: (nowMs: number) => number
  readonly #sweptWithCharge: number
  readonly #logs = new Map<string, CallLog>()
  readonly #sweep = sweeper(this.#logs, ({ expiresAtUs }) => expiresAtUs)
  readonly #stopSweeping: () => void

  /** `sweptWithCharge`: keys checked with every charge, so that sweeping keeps pace with any load. */
  constructor(clock = SYSTEM_CLOCK, sweptWithCharge = 2) {
    this.#now = clock.now
    this.#epochMs = epochOf(clock)
    this.#sweptWithCharge = sweptWithCharge
    this.#stopSweeping = clock.every(SWEEP_EVERY_MS, () => this.#sweep(SWEPT_AT_ONCE, this.#nowUs()))
  }

  charge(quotas: readonly Quota[]): Charge {
    const nowUs = this.#nowUs()
    this.#sweep(this.#sweptWithCharge, nowUs)
    return this.#decide(quotas, nowUs, true)
  }

  async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    return this.#decide(quotas, this.#nowUs(), false).allowances
  }

  #decide(quotas: readonly Quota[], nowUs: number, charging: boolean): Charge {
    const wallMs = this.#epochMs(nowUs / 1000)
    const found = quotas.map((quota) => {
      const log = this.#logs.get(quota.key) ?? createCallLog()
      const frame = frameAt(quota, nowUs, wallMs)
      const used = usedIn(log, frame)
      return { quota, log, frame, used, hasRoom: used < quota.limit }
    })
    const { admitted, settled } = settle(found)
    const allowances = settled.map(({ quota, log, frame, hasRoom, pays }) => {
      if (charging && admitted && pays) {
        if (log.total === 0) this.#logs.set(quota.key, log)
        add(log, frame)
      }
      const resetAfterMs = (growsAt(log, frame) - nowUs) / 1000
      return allowanceOf(quota, hasRoom, usedIn(log, frame), wallMs + resetAfterMs, resetAfterMs)
    })
    return { admitted, allowances, mode: 'store', decidedAt: wallMs }
  }

  giveBack(quota: Quota, endsAt: number): void {
    const nowUs = this.#nowUs()
    const wallMs = this.#epochMs(nowUs / 1000)
    const log = this.#logs.get(quota.key)
    if (log === undefined || quota.calendar?.periodAt(wallMs).endMs !== endsAt) return
    takeBack(log, frameAt(quota, nowUs, wallMs))
  }

  async keys({ matches }: KeyFilter, max = Infinity): Promise<readonly string[]> {
    return [...this.#logs.keys()].filter((key) => matches(key)).slice(0, max)
  }

  async reset(filter: KeyFilter): Promise<number> {
    const keys = await this.keys(filter)
    for (const key of keys) this.#logs.delete(key)
    return keys.length
  }

  async close(): Promise<void> {
    this.#stopSweeping()
    this.#logs.clear()
  }

  #nowUs(): number {
    return Math.round(this.#now() * 1000)
  }
}

/** Returns a function that checks the next `count` entries of a map in turn, and deletes those expired by `now`. */
export function sweeper<Key, Value>(map: Map<Key, Value>, expiresAt: (value: Value) => number) {
  let entries = map.entries()
  return (count: number, now: number): void => {
    for (let i = Math.min(count, map.size); i > 0; i--) {
      const { value: entry } = entries.next()
      if (entry === undefined) entries = map.entries()
      else if (expiresAt(entry[1]) <= now) map.delete(entry[0])
    }
  }
}
