import { Failure, serviceUnavailable } from '../../errors.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { KeyFilter } from '../key.ts'
import { Leases } from '../leases.ts'
import { isLeased, type OutageMode, type Quota, strictestMode } from '../quota.ts'
import {
  type Allowance,
  type Charge,
  type Charged,
  type Correction,
  DamagedKeyError,
  type Inspected,
  type RemoteStore,
  TimeoutError,
} from '../store.ts'
import { type BreakerOptions, createBreakers, type Mode } from './breakers.ts'
import { createLeaseChanges } from './lease-changes.ts'
import { createLocalCounters } from './local-counters.ts'
import { createSettlements } from './settlements.ts'

export interface FallbackOptions extends BreakerOptions {
  /** Gateways that share the limits under `local`. Default: those that the store counts, at least `processes`. */
  readonly instances?: number | undefined
  readonly processes?: number | undefined
  /** Percent of each limit that this gateway may admit at least under `local`; default 0. */
  readonly partPercent?: number | undefined
  /**
   * Called for each decision that the fallback makes, or refuses to make under `deny`; without a
   * cause if Redis was not asked.
   */
  readonly onFallback?: (mode: OutageMode, cause: Error | undefined) => void
  readonly onDamaged?: (key: string) => void
  /** Called at the close if the store has not merged all calls that the fallback admitted. */
  readonly onUnmerged?: () => void
}

export type FallbackStore = ReturnType<typeof withFallback>

/** Maximum turns in which a gateway that stops hands its calls over. */
const MAX_LAST_TURNS = 20

const unavailable = (cause: Error | undefined) =>
  new Failure(serviceUnavailable('The rate limits cannot be checked at the moment.', cause))

/** Throws a DamagedKeyError on: an operator must know of it. */
function withoutDamage(error: Error): undefined {
  if (error instanceof DamagedKeyError) throw error
}

/**
 * Wraps a store so that the fallback decides requests that fail or time out, and all requests while
 * the breaker of their server is open. Until the store has merged the calls that the fallback
 * admitted, in the background, each question names their number.
 */
export function withFallback(store: RemoteStore, options: FallbackOptions) {
  const { onOutage, instances, processes = 1, partPercent } = options
  const { clock = SYSTEM_CLOCK, probeEveryMs = 250 } = options
  const modeOf = (quota: Quota): OutageMode => quota.onOutage ?? onOutage
  // Under `allow` too, a DPoP proof is accepted only once.
  const isCounted = (quota: Quota): boolean => quota.isProof || modeOf(quota) === 'local'
  const breakers = createBreakers(store, options)
  const isUp = ({ key }: Quota): boolean => breakers.isUp(store.server(key))
  const gateways = (): number => instances ?? Math.max(processes, store.gateways())
  const leases = new Leases()
  const leaseChanges = createLeaseChanges(leases, store, isUp, clock)
  const ways = { isTracked: isCounted, isUp, gateways, partPercent }
  const local = createLocalCounters(clock, { store, leases, ...ways })
  const settlements = createSettlements(clock, { store, isUp, isMerging: local.isMerging })

  let lastLease = 0
  /** Returns an id for the leases of a call; undefined if none of its limits is one of calls at once. */
  function leaseOf(quotas: readonly Quota[]): string | undefined {
    const concurrent = quotas.find(isLeased)
    if (concurrent === undefined) return undefined
    return `${Math.round(local.dateMs(concurrent.key) * 1000)}:${store.id}:${++lastLease}`
  }

  function chargeFallback(quotas: readonly Quota[], lease: string | undefined, cause?: Error) {
    const limits = quotas.filter(({ isProof }) => !isProof)
    const mode = strictestMode(limits, onOutage)
    if (cause instanceof DamagedKeyError) options.onDamaged?.(cause.key)
    options.onFallback?.(mode, cause)
    if (mode === 'deny') return Promise.reject(unavailable(cause))
    return { ...local.charge(quotas.filter(isCounted), gateways(), lease), mode }
  }

  function charge(quotas: readonly Quota[]): Charge | Promise<Charge> {
    const lease = leaseOf(quotas)
    if (!isUp(quotas[0]!)) return chargeFallback(quotas, lease)
    const askedMs = lease === undefined ? 0 : clock.now()
    return store.charge(quotas, local.own, lease).then(
      (charge) => local.answered(quotas, charge, askedMs),
      (error: Error) => {
        // The store may have charged the call before its answer was lost: it then counts twice, which
        // refuses too much, never too little. It may also have added the leases.
        for (const quota of quotas.filter(isLeased)) leaseChanges.end({ quota, id: lease! })
        return chargeFallback(quotas, leaseOf(quotas), error)
      },
    )
  }

  function endLease(quota: Quota, id: string): void {
    const lease = leases.end(quota, id)
    if (lease?.mayBeStored) leaseChanges.end(lease)
  }

  function release(quotas: readonly Quota[], id: string, mayGoOn = false): void {
    for (const quota of quotas) {
      const kept = mayGoOn ? leases.keep(quota, id, clock.now()) : undefined
      if (kept === undefined) endLease(quota, id)
      else clock.after(kept.endsAtMs - clock.now(), () => endLease(quota, id))
    }
  }

  function ownRefusal(quota: Quota): Allowance | undefined {
    const { key, limit } = quota
    if (leases.count(key) < limit || limit === 0 || !isUp(quota)) return undefined
    return leases.allowance(quota, false, local.dateMs(key), false)
  }

  /**
   * Reads quotas from the store, or from this gateway's own counters after an error that `ignore`
   * does not throw on.
   */
  async function read(quotas: readonly Quota[], ignore: (error: Error) => undefined) {
    if (quotas.length === 0) return []
    const found = isUp(quotas[0]!) ? await store.peek(quotas, local.own).catch(ignore) : undefined
    if (found) return found.map((allowance): Inspected => ({ allowance, mode: 'store' }))
    return quotas.map((quota): Inspected => {
      const mode = modeOf(quota)
      if (mode === 'local') return { allowance: local.peek([quota], gateways())[0]!, mode }
      // Under `allow` nothing is counted, so the whole limit remains.
      return { allowance: { ...local.peek([quota], 1)[0]!, part: undefined }, mode }
    })
  }

  async function peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
    let cause: Error | undefined
    const found = await read(quotas, (error) => void (cause = error))
    if (found.some(({ mode }) => mode === 'deny')) throw unavailable(cause)
    return found.map(({ allowance }) => allowance)
  }

  /** Has the leases of calls in progress stored again, those of the keys that match. */
  function storeAgain(matches: (key: string) => boolean): void {
    for (const key of leases.keys()) if (matches(key)) leases.doubt(key, 0, Infinity)
  }

  function settle(charge: Charged, corrections: readonly Correction[]): Promise<void> | undefined {
    const unstored = corrections.flatMap((correction) => local.settle(charge, correction) ?? [])
    return unstored.length === 0 ? undefined : settlements.add(unstored)
  }

  const hasWork = (): boolean => !local.own.isEmpty() || settlements.hasWaiting() || leaseChanges.hasEnded()
  const work = () => Promise.all([local.handOverAll(), settlements.turn(), leaseChanges.turn()])
  const stopWorking = clock.every(probeEveryMs, () => void work())

  return {
    /** Returns `store`, or `onOutage` while any server of the store is down. */
    mode: (): Mode => (breakers.isDegraded() ? onOutage : 'store'),
    begin: breakers.begin,
    check: breakers.check,
    fail: breakers.fail,
    charge,
    release,
    ownRefusal,
    peek,
    settle,
    inspect: (quotas: readonly Quota[]) => read(quotas, withoutDamage),
    keys: (filter: KeyFilter, max?: number, signal?: AbortSignal) =>
      store.keys(filter, max, signal).catch((error: Error) => {
        signal?.throwIfAborted()
        // A scan may be slow while Redis answers calls: then the own keys are not all that are counted.
        if (error instanceof TimeoutError && !breakers.isDegraded()) throw error
        return local.keys(filter.matches).slice(0, max)
      }),
    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      const freed = await store.reset(filter, signal)
      local.reset(filter.matches)
      settlements.reset(filter.matches)
      // Calls in progress go on, and get their places back.
      storeAgain(filter.matches)
      return freed
    },
    /** Has the leases of a server that has lost its data stored again. */
    restoreLeases: (server: string): void => storeAgain((key) => store.server(key) === server),
    async close(): Promise<void> {
      stopWorking()
      // The first also has the leases of calls that were left end when they are to, without this gateway.
      for (let turns = 0; turns === 0 || (turns < MAX_LAST_TURNS && hasWork()); turns++) await work()
      if (!local.own.isEmpty()) options.onUnmerged?.()
      breakers.close()
      await store.close()
    },
  }
}
