import { type Clock, SYSTEM_CLOCK } from './clock.ts'
import type { KeyFilter, Quota } from '../limit.ts'
import { add, bringBack, createRing, growsAt, isAhead, look, type Ring, type View } from './ring.ts'
import type { Allowance, Charge, Store } from '../store.ts'

const SWEEP_MS = 1000
const SWEPT_AT_ONCE = 50_000

export interface MemoryStoreOptions {
  readonly clock?: Clock
  /** Keys looked at with every charge, so that sweeping keeps pace with any load. */
  readonly sweptWithCharge?: number
}

interface Counter {
  readonly ring: Ring
  expiresAtUs: number
}

/** Counters in this process: the same algorithm as charge.lua, decided synchronously. */
export class MemoryStore implements Store {
  readonly #clock: Clock
  readonly #sweptWithCharge: number
  readonly #counters = new Map<string, Counter>()
  readonly #sweep = sweeper(this.#counters, ({ expiresAtUs }) => expiresAtUs)
  readonly #timer: NodeJS.Timeout

  constructor({ clock = SYSTEM_CLOCK, sweptWithCharge = 2 }: MemoryStoreOptions = {}) {
    this.#clock = clock
    this.#sweptWithCharge = sweptWithCharge
    this.#timer = setInterval(() => this.sweep(SWEPT_AT_ONCE), SWEEP_MS).unref()
  }

  /** How many keys are held, expired ones too until they are swept. */
  get size(): number {
    return this.#counters.size
  }

  charge(quotas: readonly Quota[]): Charge {
    const nowUs = this.#nowUs()
    this.#sweep(this.#sweptWithCharge, nowUs)
    let admitted = true
    const asked = quotas.map((quota) => {
      const counter = this.#counters.get(quota.key)
      const windowUs = quota.windowMs * 1000
      if (counter && isAhead(counter.ring, windowUs, nowUs)) {
        bringBack(counter.ring, nowUs)
        counter.expiresAtUs = nowUs + windowUs
      }
      const view = counter ? look(counter.ring, windowUs, nowUs) : NOTHING
      const hasRoom = view.used < quota.limit
      if (!hasRoom && !quota.shadow) admitted = false
      return { quota, counter, view, hasRoom }
    })
    const wallMs = this.#clock.wallMs(nowUs / 1000)
    const allowances = asked.map(({ quota, counter, view, hasRoom }) =>
      admitted && hasRoom
        ? this.#admit(quota, nowUs, wallMs)
        : allowance(quota, counter?.ring, view, hasRoom, nowUs, wallMs),
    )
    return { admitted, allowances, mode: 'store', decidedAt: wallMs }
  }

  #admit(quota: Quota, nowUs: number, wallMs: number): Allowance {
    const windowUs = quota.windowMs * 1000
    const counter = this.#counterOf(quota.key, 0)
    const { ring } = counter
    add(ring, look(ring, windowUs, nowUs), quota.limit, windowUs, nowUs)
    counter.expiresAtUs = ring.newest + windowUs
    return allowance(quota, ring, { left: 0, used: ring.total - ring.gone }, true, nowUs, wallMs)
  }

  #counterOf(key: string, expiresAtUs: number): Counter {
    let counter = this.#counters.get(key)
    if (counter === undefined) {
      counter = { ring: createRing(), expiresAtUs }
      this.#counters.set(key, counter)
    }
    return counter
  }

  async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    const nowUs = this.#nowUs()
    const wallMs = this.#clock.wallMs(nowUs / 1000)
    return quotas.map((quota) => {
      const windowUs = quota.windowMs * 1000
      let ring = this.#counters.get(quota.key)?.ring
      if (ring && isAhead(ring, windowUs, nowUs)) {
        ring = structuredClone(ring)
        bringBack(ring, nowUs)
      }
      const view = ring ? look(ring, windowUs, nowUs) : NOTHING
      return allowance(quota, ring, view, view.used < quota.limit, nowUs, wallMs)
    })
  }

  async keys({ matches }: KeyFilter, most = Number.POSITIVE_INFINITY): Promise<readonly string[]> {
    return [...this.#counters.keys()].filter((key) => matches(key)).slice(0, most)
  }

  async reset(filter: KeyFilter): Promise<number> {
    const keys = await this.keys(filter)
    for (const key of keys) this.#counters.delete(key)
    return keys.length
  }

  /** Takes calls for made so long ago, whether there is room or not. */
  add(quota: Quota, calls: number, agoMs: number): void {
    const windowUs = quota.windowMs * 1000
    const atUs = this.#nowUs() - Math.round(agoMs * 1000)
    const { ring } = this.#counterOf(quota.key, atUs + windowUs)
    add(ring, look(ring, windowUs, atUs), Number.MAX_SAFE_INTEGER, windowUs, atUs, calls)
  }

  /** Is anything counted under this key? */
  has(key: string): boolean {
    return this.#counters.has(key)
  }

  /** The calls that are still counted of a quota. */
  used({ key, windowMs }: Quota): number {
    const ring = this.#counters.get(key)?.ring
    return ring === undefined ? 0 : look(ring, windowMs * 1000, this.#nowUs()).used
  }

  /** Forgets what is counted under a key. */
  drop(key: string): void {
    this.#counters.delete(key)
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#counters.clear()
  }

  /** Looks at so many keys, where the last sweep ended, and drops the expired ones. */
  sweep(count: number): void {
    this.#sweep(count, this.#nowUs())
  }

  #nowUs(): number {
    return Math.round(this.#clock.monotonicMs() * 1000)
  }
}

const NOTHING: View = { left: 0, used: 0 }

/** Looks at so many entries of a map, where it ended the last time, and drops those that have expired by then. */
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

function allowance(
  { name, limit, windowMs, shadow }: Quota,
  ring: Ring | undefined,
  view: View,
  admitted: boolean,
  nowUs: number,
  wallMs: number,
): Allowance {
  const windowUs = windowMs * 1000
  const remaining = Math.max(0, limit - view.used)
  const growsAtUs = ring
    ? growsAt(ring, view, limit, windowUs, nowUs)
    : limit === 0
      ? nowUs + windowUs
      : nowUs
  const resetAfterMs = (growsAtUs - nowUs) / 1000
  return {
    name,
    limit,
    windowMs,
    remaining,
    resetAt: Math.ceil(wallMs + resetAfterMs),
    resetAfterMs,
    retryAfterMs: remaining > 0 ? 0 : resetAfterMs,
    admitted,
    shadow,
  }
}
