import type { KeyFilter } from '../key.ts'
import { Leases } from '../leases.ts'
import { admits, fullAt, type KeyedWindow, type Quota, sharedUs, verdictOf } from '../quota.ts'
import { epochOf, SYSTEM_CLOCK } from '../../runtime/clock.ts'
import {
  type Allowance,
  allowanceOf,
  type Charge,
  type Charged,
  chargeOf,
  type Correction,
  type InspectedStore,
} from '../store.ts'
import { add, CallLog, frameAt, growsAt, settle, usedIn } from './call-log.ts'

const SWEEP_EVERY_MS = 1000
const SWEPT_AT_ONCE = 50_000

/**
 * Creates counters in this process, with the algorithm of charge.lua. `sweptWithCharge` keys are
 * checked with each charge: sweeping keeps pace with any load.
 */
export function createMemoryStore(clock = SYSTEM_CLOCK, sweptWithCharge = 2) {
  const epochMs = epochOf(clock)
  const logs = new Map<string, CallLog>()
  const leases = new Leases()
  let lastLease = 0
  const sweep = sweeper(logs, ({ expiresAtUs }) => expiresAtUs)
  const nowUs = (): number => Math.round(clock.now() * 1000)
  const stopSweeping = clock.every(SWEEP_EVERY_MS, () => sweep(SWEPT_AT_ONCE, nowUs()))

  function count(limit: number, window: KeyedWindow, atUs: number, wallMs: number) {
    const { key } = window
    const log = logs.get(key) ?? new CallLog()
    const frame = frameAt(limit, window, atUs, wallMs)
    return { key, log, frame, used: usedIn(log, frame) }
  }

  function charge({ key, log, frame }: ReturnType<typeof count>, cost = 1): void {
    if (log.total === 0) logs.set(key, log)
    add(log, frame, cost)
  }

  function decide(quotas: readonly Quota[], atUs: number, charging: boolean): Charge {
    const wallMs = epochMs(atUs / 1000)
    const found = quotas.map((quota) => {
      const counted = count(quota.limit, quota, atUs, wallMs)
      const used = quota.isConcurrent ? leases.count(quota.key) : counted.used
      const access = quota.access && count(1, quota.access, atUs, wallMs)
      const verdict = verdictOf(quota, used, used < fullAt(quota), access && access.used > 0)
      return { quota, counted, access, verdict }
    })
    const admitted = admits(found)
    const hasLeases = charging && admitted && quotas.some(({ isConcurrent }) => isConcurrent)
    const lease = hasLeases ? `${Math.round(wallMs * 1000)}:${++lastLease}` : undefined
    const allowances = found.map(({ quota, counted, access, verdict }): Allowance => {
      if (quota.isConcurrent) {
        if (lease && verdict === 'pays') leases.hold(quota, lease, Infinity, atUs / 1000)
        return leases.allowance(quota, verdict !== 'none', wallMs, !charging)
      }
      if (charging && admitted && verdict === 'pays') {
        charge(counted, quota.cost)
        if (access !== undefined) charge(access)
      }
      const { log, frame } = counted
      const full = verdict === 'none' ? fullAt(quota) : quota.limit
      const resetAfterMs = (growsAt(log, frame, full) - atUs) / 1000
      return allowanceOf(quota, verdict !== 'none', usedIn(log, frame), wallMs + resetAfterMs, resetAfterMs)
    })
    return chargeOf(quotas, allowances, {
      admitted,
      mode: 'store',
      decidedAt: wallMs,
      chargedUs: atUs,
      lease,
    })
  }

  const peek = (quotas: readonly Quota[]) => decide(quotas, nowUs(), false).allowances

  const keys = ({ matches }: KeyFilter, max = Infinity): readonly string[] =>
    [...logs.keys(), ...leases.keys()].filter((key) => matches(key)).slice(0, max)

  return {
    charge(quotas: readonly Quota[]): Charge {
      const atUs = nowUs()
      sweep(sweptWithCharge, atUs)
      return decide(quotas, atUs, true)
    },
    peek: async (quotas: readonly Quota[]) => peek(quotas),
    inspect: async (quotas: readonly Quota[]) =>
      peek(quotas).map((allowance) => ({ allowance, mode: 'store' as const })),
    settle({ chargedUs, decidedAt }: Charged, corrections: readonly Correction[]): void {
      for (const { quota, points } of corrections) {
        const log = logs.get(quota.key)
        if (log !== undefined) settle(log, points, chargedUs!, sharedUs(quota, decidedAt!))
      }
    },
    release(quotas: readonly Quota[], lease: string, mayGoOn = false): void {
      for (const quota of quotas) {
        const kept = mayGoOn ? leases.keep(quota, lease, clock.now()) : undefined
        if (kept === undefined) leases.end(quota, lease)
        else clock.after(kept.endsAtMs - clock.now(), () => leases.end(quota, lease))
      }
    },
    ownRefusal: () => undefined,
    keys: async (filter: KeyFilter, max?: number) => keys(filter, max),
    reset: async (filter: KeyFilter) => keys(filter).filter((key) => logs.delete(key)).length,
    async close(): Promise<void> {
      stopSweeping()
      logs.clear()
    },
  } satisfies InspectedStore
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
