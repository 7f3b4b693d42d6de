import type { KeyFilter } from '../key.ts'
import type { Quota } from '../limit.ts'
import { type Allowance, allowanceOf, type Charge, type Store } from '../store.ts'
import { add, type CallLog, createCallLog, growsAt, newest, viewAt } from './call-log.ts'

/** A difference above this means that the wall clock was set; one below it is its granularity. */
const STEP_MS = 20
let wallAheadMs = Date.now() - performance.now()

/** This machine's clocks. Milliseconds. */
export const SYSTEM_CLOCK = {
  /** Counts on a clock that never goes back. */
  monotonicMs: (): number => performance.now(),
  /** Converts it to the wall clock; one instant alike however often, which `Date.now()` with its whole milliseconds does not. */
  wallMs(monotonicMs: number): number {
    const strayMs = Date.now() - (monotonicMs + wallAheadMs)
    if (Math.abs(strayMs) > STEP_MS) wallAheadMs += strayMs
    return monotonicMs + wallAheadMs
  },
}

const SWEEP_EVERY_MS = 1000
const SWEPT_AT_ONCE = 50_000

interface Counter {
  readonly log: CallLog
  expiresAtUs: number
}

/** Counters in this process: the same algorithm as charge.lua, decided synchronously. */
export class MemoryStore implements Store {
  readonly #clock: typeof SYSTEM_CLOCK
  readonly #sweptWithCharge: number
  readonly #counters = new Map<string, Counter>()
  readonly #sweep = sweeper(this.#counters, ({ expiresAtUs }) => expiresAtUs)
  readonly #timer: NodeJS.Timeout

  /** `sweptWithCharge`: keys swept with every charge, so that sweeping keeps pace with any load. */
  constructor(clock = SYSTEM_CLOCK, sweptWithCharge = 2) {
    this.#clock = clock
    this.#sweptWithCharge = sweptWithCharge
    this.#timer = setInterval(() => this.sweep(SWEPT_AT_ONCE), SWEEP_EVERY_MS).unref()
  }

  /** How many keys are held, expired ones too until they are swept. */
  get size(): number {
    return this.#counters.size
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
    let admitted = true
    const asked = quotas.map((quota) => {
      const log = this.#counters.get(quota.key)?.log ?? createCallLog()
      const view = viewAt(log, quota.windowMs * 1000, nowUs)
      const hasRoom = view.used < quota.limit
      if (!hasRoom && !quota.shadow) admitted = false
      return { quota, log, view, hasRoom }
    })
    const wallMs = this.#clock.wallMs(nowUs / 1000)
    const allowances = asked.map(({ quota, log, view, hasRoom }) => {
      const { limit, windowMs } = quota
      const charged = charging && admitted && hasRoom ? this.#add(quota, 1, limit, nowUs) : undefined
      const seen = charged === undefined ? view : { left: 0, used: charged.total - charged.gone }
      const resetAfterMs = (growsAt(charged ?? log, seen, limit, windowMs * 1000, nowUs) - nowUs) / 1000
      return allowanceOf(quota, hasRoom, Math.max(0, limit - seen.used), wallMs + resetAfterMs, resetAfterMs)
    })
    return { admitted, allowances, mode: 'store', decidedAt: wallMs }
  }

  async keys({ matches }: KeyFilter, max = Infinity): Promise<readonly string[]> {
    return [...this.#counters.keys()].filter((key) => matches(key)).slice(0, max)
  }

  async reset(filter: KeyFilter): Promise<number> {
    const keys = await this.keys(filter)
    for (const key of keys) this.drop(key)
    return keys.length
  }

  /** Adds calls that were made so long ago, whether there is room or not. */
  add(quota: Quota, calls: number, agoMs: number): void {
    this.#add(quota, calls, Number.MAX_SAFE_INTEGER, this.#nowUs() - Math.round(agoMs * 1000))
  }

  #add({ key, windowMs }: Quota, calls: number, limit: number, atUs: number): CallLog {
    const windowUs = windowMs * 1000
    let counter = this.#counters.get(key)
    if (counter === undefined) this.#counters.set(key, (counter = { log: createCallLog(), expiresAtUs: 0 }))
    const { log } = counter
    add(log, viewAt(log, windowUs, atUs), limit, windowUs, atUs, calls)
    counter.expiresAtUs = newest(log) + windowUs
    return log
  }

  has(key: string): boolean {
    return this.#counters.has(key)
  }

  used({ key, windowMs }: Quota): number {
    const log = this.#counters.get(key)?.log
    return log === undefined ? 0 : viewAt(log, windowMs * 1000, this.#nowUs()).used
  }

  drop(key: string): void {
    this.#counters.delete(key)
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#counters.clear()
  }

  /** Checks so many keys, from where the last sweep ended, and drops the expired ones. */
  sweep(count: number): void {
    this.#sweep(count, this.#nowUs())
  }

  #nowUs(): number {
    return Math.round(this.#clock.monotonicMs() * 1000)
  }
}

/** Returns a function that checks so many entries of a map, from where it last ended, and drops those expired by `now`. */
export function sweeper<Key, Value>(
  map: Map<Key, Value>,
  expiresAt: (value: Value) => number,
): (count: number, now: number) => void {
  let entries = map.entries()
  return (count, now) => {
    for (let i = Math.min(count, map.size); i > 0; i--) {
      const { value: entry } = entries.next()
      if (entry === undefined) entries = map.entries()
      else if (expiresAt(entry[1]) <= now) map.delete(entry[0])
    }
  }
}
