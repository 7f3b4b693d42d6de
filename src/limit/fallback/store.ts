import { Failure, serviceUnavailable } from '../../errors.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { KeyFilter } from '../key.ts'
import { isProof, type OutageMode, type Quota } from '../limit.ts'
import { type Allowance, type Charge, DamagedKeyError } from '../store.ts'
import { type BreakerOptions, createBreakers, type Mode, type RemoteStore } from './breakers.ts'
import { createLocalCounters } from './local-counters.ts'

export interface FallbackOptions extends BreakerOptions {
  /** Gateways that share the limits under `local`. Default: those that the store counts, at least `processes`. */
  readonly instances?: number | undefined
  readonly processes?: number | undefined
  /** Called for each decision that the fallback makes, or refuses to make under `deny`; without a cause if Redis was not asked. */
  readonly onFallback?: (mode: OutageMode, cause: Error | undefined) => void
  readonly onDamaged?: (key: string) => void
}

export type FallbackStore = ReturnType<typeof withFallback>

/** Maximum turns in which a gateway that stops adds its calls. */
const MAX_LAST_TURNS = 20

const unavailable = (cause: Error | undefined) =>
  new Failure(serviceUnavailable('The rate limits cannot be checked at the moment.', cause))

/**
 * Wraps a store so that the fallback decides requests that fail or time out, and all requests while the breaker of their server is
 * open. Calls that the fallback admitted go to the store in the script call of their key's next question, else in the background.
 */
export function withFallback(store: RemoteStore, options: FallbackOptions) {
  const { onOutage, instances, processes = 1, clock = SYSTEM_CLOCK, probeEveryMs = 250 } = options
  const modeOf = (quota: Quota): OutageMode => quota.onOutage ?? onOutage
  // Under `allow` too, a DPoP proof is accepted only once.
  const isCounted = (quota: Quota): boolean => isProof(quota) || modeOf(quota) === 'local'
  const local = createLocalCounters(clock, store, isCounted)
  const breakers = createBreakers(store, options)

  const isUp = (quotas: readonly Quota[]): boolean => breakers.isUp(store.server(quotas[0]!.key))
  const gateways = (): number => instances ?? Math.max(processes, store.gateways())

  /** Returns the strictest mode of the limits of a call; without limits, that of the store. */
  function strictest(quotas: readonly Quota[]): OutageMode {
    const modes = new Set(quotas.filter((quota) => !isProof(quota)).map(modeOf))
    return (['deny', 'local', 'allow'] as const).find((mode) => modes.has(mode)) ?? onOutage
  }

  function chargeFallback(quotas: readonly Quota[], cause?: Error): Charge | Promise<never> {
    const mode = strictest(quotas)
    if (cause instanceof DamagedKeyError) options.onDamaged?.(cause.key)
    options.onFallback?.(mode, cause)
    if (mode === 'deny') return Promise.reject(unavailable(cause))
    return { ...local.charge(quotas.filter(isCounted), gateways()), mode }
  }

  function charge(quotas: readonly Quota[]): Charge | Promise<Charge> {
    if (!isUp(quotas)) return chargeFallback(quotas)
    const adding = local.adding(quotas)
    if (adding === 'late') return chargeFallback(quotas)
    // If the addition failed, another would, too: all that waited for it are decided here.
    if (adding !== undefined)
      return adding.then((error) => (error === undefined ? charge(quotas) : chargeFallback(quotas, error)))
    return local
      .ask(quotas, (additions) => store.charge(quotas, additions))
      .then(
        (charge) => local.answered(quotas, charge),
        (error: Error) => chargeFallback(quotas, error),
      )
  }

  async function peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    if (quotas.length === 0) return []
    const adding = local.adding(quotas)
    // A failed addition is read from the local counters.
    const failed = adding instanceof Promise ? await adding : undefined
    if (adding instanceof Promise && failed === undefined) return await peek(quotas)
    const found =
      adding === undefined && isUp(quotas)
        ? await local.ask(quotas, (additions) => store.peek(quotas, additions)).catch((error: Error) => error)
        : undefined
    if (found !== undefined && !(found instanceof Error)) return found
    const mode = strictest(quotas)
    if (mode === 'deny') throw unavailable(found)
    // Under `allow` nothing is counted, so the whole limit remains.
    return local.peek(quotas, mode === 'local' ? gateways() : 1)
  }

  async function addPending(): Promise<number> {
    const pending = local.pending((quota) => isUp([quota]))
    await Promise.all(pending.map((quota) => peek([quota]).catch(() => {})))
    return pending.length
  }
  const stopAdding = clock.every(probeEveryMs, () => void addPending())

  return {
    /** Returns `store`, or `onOutage` while any server of the store is down. */
    mode: (): Mode => (breakers.isDegraded() ? onOutage : 'store'),
    begin: breakers.begin,
    check: breakers.check,
    fail: breakers.fail,
    charge,
    peek,
    giveBack(quota: Quota, endsAt: number): void {
      local.giveBack(quota, endsAt)
      if (isUp([quota]) && local.adding([quota]) === undefined) peek([quota]).catch(() => {})
    },
    keys: store.keys,
    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      const freed = await store.reset(filter, signal)
      local.reset(filter.matches)
      return freed
    },
    async close(): Promise<void> {
      stopAdding()
      for (let turn = 0; turn < MAX_LAST_TURNS; turn++) if ((await addPending()) === 0) break
      breakers.close()
      await store.close()
    },
  }
}
