import { boundOf, type Inspected, type InspectedStore } from '../../limit/store.ts'
import type { Reserves } from '../../gateway/reserves.ts'
import { instantOrNull, type LimitUsage, usageOf } from '../../gateway/usage.ts'
import { parseKey } from '../../limit/key.ts'
import type { LimitOptions } from '../../policy/apply.ts'
import { assertCounted, callerKeys, counterKeys, showKey } from '../../policy/caller-keys.ts'
import { type CountedCaller, formatCaller, showCaller } from '../../policy/counted-caller.ts'
import { counterNameOf, decodePart } from '../../policy/key.ts'
import type { Limit } from '../../policy/limit.ts'
import { isOverridable, listOverrides, type ListedOverride } from '../../policy/overrides.ts'
import { planOf } from '../../policy/plans.ts'
import { quotaOf, rulesOf } from '../../policy/rule.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'

/** Maximum counters that are shown of a caller. */
export const MAX_KEYS = 1000

/** A counter of a caller, as operators read it. */
export interface CounterUsage extends LimitUsage {
  /** The key in the store, with shortened values of header fields and tokens. */
  readonly key: string
  readonly used: number
  /** Points of `used` that calls in progress at this process hold, until it is known what they use. */
  readonly reserved: number
  /** The end of the override, or of the client's own limit. */
  readonly until: string | null
  /** True if an override is in force. */
  readonly override: boolean
  readonly shadow: boolean
  /** `store`, or this gateway's mode without Redis. */
  readonly mode: Inspected['mode']
  /** The calls of `limit` that this gateway may admit without Redis; null if all. */
  readonly part: number | null
}

/** The counters of one caller, as operators read them. */
export interface CallerUsage {
  readonly caller: string
  /** The limits that count only by the caller, and each other key with calls. */
  readonly limits: readonly CounterUsage[]
  /** The client's own limits of the file, in force or not. */
  readonly own: readonly Pick<CounterUsage, 'name' | 'limit' | 'until'>[]
  /** The plan of the client in the files; null if it has none. A token may name another. */
  readonly plan: string | null
  /** Includes overrides without effect. */
  readonly overrides: readonly ListedOverride[]
  /** The limits that can be set for the caller. */
  readonly settable: readonly string[]
  /** True if the caller has more than `MAX_KEYS` counters. */
  readonly truncated: boolean
}

/**
 * Reads and resets the counters of callers. Charges nothing, and rejects if the store does not answer,
 * for a caller that no limit counts with an UncountedCaller.
 */
export interface Counters {
  /** Returns the counters of a caller. May scan the store. */
  ofCaller(caller: CountedCaller, signal?: AbortSignal): Promise<CallerUsage>
  /** Deletes every key of a caller, and returns their number. May scan the store. */
  free(caller: CountedCaller, signal?: AbortSignal): Promise<number>
}

interface CountersOptions extends LimitOptions {
  readonly store: Pick<InspectedStore, 'inspect' | 'keys' | 'reset'>
  readonly reserves: Pick<Reserves, 'of'>
  readonly limits: readonly Limit[]
}

export function createCounters(options: CountersOptions): Counters {
  const { store, reserves, prefix, limits, clientLimits, overrides, plans } = options

  /**
   * Applies its limit to a key, and the shares of that. The rules are also those of the client whom
   * it counts, if any.
   */
  function applyTo(key: string, nowMs: number) {
    const { name, parts } = parseKey(prefix, key)!
    const counting = limits.filter((limit) => counterNameOf(limit) === name)
    return counting.map((rule) => {
      const at = rule.per.indexOf('client')
      const client = at === -1 ? undefined : decodePart(parts[at] ?? '')
      const rules = rulesOf(options, rule, key, { client })
      return { rule, rules, quota: quotaOf(rule, key, nowMs, rules) }
    })
  }

  return {
    async ofCaller(caller, signal) {
      assertCounted(limits, caller)
      const nowMs = SYSTEM_CLOCK.date()
      const client = caller.find(({ word }) => word === 'client')?.value
      const own = clientLimits?.get(client ?? '') ?? []
      const name = formatCaller(caller)
      const set = [...(overrides?.values() ?? [])].filter(({ caller }) => formatCaller(caller) === name)
      const filter = counterKeys(limits, prefix, caller)
      const names = await store.keys(filter, MAX_KEYS + 1, signal)
      const found = [...new Set([...filter.named, ...names.toSorted()])]
      const counted = found.slice(0, MAX_KEYS).flatMap((key) => applyTo(key, nowMs))
      const inspected = await store.inspect(counted.map(({ quota }) => quota))
      const keys = counted.map(({ rule, rules, quota }, i) => {
        const { allowance, mode } = inspected[i]!
        return {
          key: showKey(prefix, rule, quota.key),
          ...usageOf(allowance, rule, rules, nowMs),
          until: instantOrNull(quota.untilAt),
          override: quota.source === 'override',
          shadow: quota.shadow,
          used: allowance.used,
          reserved: reserves.of(quota.key),
          mode,
          part: boundOf(allowance) ?? null,
        }
      })
      return {
        caller: showCaller(caller),
        limits: keys.filter(({ used }, i) => used > 0 || filter.named.includes(counted[i]!.quota.key)),
        own: [...own].map(([name, { limit, untilAt }]) => ({ name, limit, until: instantOrNull(untilAt) })),
        plan: (plans && planOf(plans, { client })) ?? null,
        overrides: listOverrides(set, limits, nowMs),
        settable: limits.filter((limit) => isOverridable(limit, caller)).map(({ name }) => name),
        truncated: found.length > MAX_KEYS,
      }
    },

    async free(caller, signal) {
      assertCounted(limits, caller)
      return await store.reset(callerKeys(limits, prefix, caller), signal)
    },
  }
}
