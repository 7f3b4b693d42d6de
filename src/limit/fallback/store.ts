import { Failure, serviceUnavailable } from '../../errors.ts'
import { type Breaker, createBreaker } from './breaker.ts'
import { isProof, type KeyFilter, type Quota } from '../limit.ts'
import { LocalCounters } from './local-counters.ts'
import { type Allowance, type Charge, DamagedKeyError, type RemoteStore, type Store } from '../store.ts'

/** What decides while the store is out of reach: counters in this process, nothing, or a 503. */
export type OutageMode = 'local' | 'allow' | 'deny'

export interface OutageOptions {
  readonly onOutage: OutageMode
  /** Gateways that share the limits, in place of those that the store counts: under `local` each takes its part. */
  readonly instances?: number | undefined
  /** How many gateways there are at least; one, unless given. */
  readonly processes?: number | undefined
  /** Failures in a row after which a server is not asked again until it answers a probe. */
  readonly failures?: number
  /** How often a server that fails is probed, and how far apart the first and the last of these failures are at least. */
  readonly probeEveryMs?: number
  /** How often each server is probed that does not fail. */
  readonly idleEveryMs?: number
  /** Called for each decision that the fallback took, or refused to take under `deny`. */
  readonly onStandIn?: () => void
  /** Gets every change of what decides: of one of the store's servers, with the failure that caused it. */
  readonly onChange?: (change: OutageChange) => void
  /** Gets a key that holds no log of calls, whenever a decision needs it. */
  readonly onDamaged?: (key: string) => void
}

export interface OutageChange {
  /** What decides for this server's keys from now on. */
  readonly mode: 'store' | OutageMode
  readonly server: string
  /** Does any server of the store fail now? */
  readonly degraded: boolean
  readonly cause: Error | undefined
}

/** A store that fails the way the operator chose. */
export interface OutageStore extends Store {
  /** `store`, or what `onOutage` says while any server of the store is not asked. */
  mode(): 'store' | OutageMode
  /** Probes every server once; of those that fail, none is asked again until it answers a probe. */
  begin(): Promise<void>
  /** Probes every server that is asked: some connection was lost. */
  look(): void
  /** No server is asked any more until it answers a probe. */
  fail(cause: Error): void
}

const RESTORED_AT_ONCE = 64

/** Wraps a store that may fail. Under `deny` it rejects with a ServiceUnavailable. */
export function withOutage(store: RemoteStore, options: OutageOptions): OutageStore {
  const { onOutage, instances, failures = 3, probeEveryMs = 250, idleEveryMs = 2000 } = options
  const { processes = 1, onStandIn, onChange, onDamaged } = options
  const local = new LocalCounters()
  const breakers = new Map<string, Breaker>()
  const restoring = new Set<string>()
  let open = 0

  /** A key of this server: this one, unless it has moved to another. */
  function keptBy(server: string, key: string): string {
    if (store.server(key) === server) return key
    return store.samples().find((one) => store.server(one) === server) ?? key
  }

  function breakerOf(server: string): Breaker {
    let breaker = breakers.get(server)
    if (breaker === undefined) {
      breaker = createBreaker({
        failures,
        probeEveryMs,
        probe: (key) => store.probe(keptBy(server, key)),
        reconnect: (key) => store.reconnect(keptBy(server, key)),
        onChange(closed, cause) {
          open += closed ? -1 : 1
          onChange?.({ mode: closed ? 'store' : onOutage, server, degraded: open > 0, cause })
        },
        onRecovered: () => void restore(server),
      })
      breakers.set(server, breaker)
    }
    return breaker
  }

  store.onQuestion = (server, key, error) => {
    if (error === undefined) breakerOf(server).succeeded()
    else breakerOf(server).failed(error, key)
  }

  /** Writes back what was counted here while the server failed, some keys at a time; ends where it fails again, to be called then. */
  async function restore(server: string): Promise<void> {
    if (restoring.has(server)) return
    restoring.add(server)
    const counted = local.counted((key) => store.server(key) === server)
    for (let i = 0; i < counted.length; i += RESTORED_AT_ONCE) {
      const some = counted.slice(i, i + RESTORED_AT_ONCE)
      const written = some.map(async (quota) => local.restored(quota, await store.charge([quota])))
      const ends = await Promise.allSettled(written)
      if (ends.every(({ status }) => status === 'rejected')) break
    }
    restoring.delete(server)
  }

  /** Without callers, an outage is noticed too; and servers that left a cluster are forgotten. */
  function probeAll(): void {
    const servers = new Set(store.samples().map((key) => store.server(key)))
    for (const [server, breaker] of breakers) {
      if (!breaker.isClosed() || servers.has(server)) continue
      breaker.stop()
      breakers.delete(server)
    }
    look()
  }
  function look(): void {
    for (const key of store.samples()) breakerOf(store.server(key)).look(key)
  }
  const timer = setInterval(probeAll, idleEveryMs).unref()

  const gateways = () => instances ?? Math.max(processes, store.gateways())

  function chargeFallback(quotas: readonly Quota[], cause: Error | undefined): Charge | Promise<never> {
    if (cause instanceof DamagedKeyError) onDamaged?.(cause.key)
    onStandIn?.()
    if (onOutage === 'deny') return Promise.reject(unavailable(cause))
    if (onOutage === 'local') return local.charge(quotas, gateways())
    // A proof passes once all the same.
    const proofs = quotas.filter(isProof)
    const admitted = proofs.length === 0 || local.charge(proofs, 1).admitted
    return { admitted, allowances: [], mode: 'allow' }
  }

  return {
    mode: () => (open > 0 ? onOutage : 'store'),
    async begin() {
      const probes = store.samples().map(async (key) => {
        const breaker = breakerOf(store.server(key))
        await store.probe(key).catch((error: Error) => breaker.trip(error, key))
      })
      await Promise.all(probes)
    },
    look,
    fail(cause) {
      for (const key of store.samples()) breakerOf(store.server(key)).trip(cause, key)
    },
    charge(quotas) {
      if (!breakerOf(store.server(quotas[0]!.key)).isClosed()) return chargeFallback(quotas, undefined)
      const asked = store.charge(quotas)
      if (!(asked instanceof Promise)) return asked
      return asked.then(
        (charge) => {
          if (onOutage === 'local') local.note(quotas, charge)
          return charge
        },
        (error: Error) => chargeFallback(quotas, error),
      )
    },
    async peek(quotas): Promise<readonly Allowance[]> {
      if (quotas.length === 0) return []
      let cause: Error | undefined
      if (breakerOf(store.server(quotas[0]!.key)).isClosed()) {
        try {
          return await store.peek(quotas)
        } catch (error) {
          cause = error as Error
        }
      }
      if (onOutage === 'deny') throw unavailable(cause)
      // Under `allow` nothing is counted, so that all of a limit is there.
      return local.peek(quotas, onOutage === 'local' ? gateways() : 1)
    },
    keys: (filter, most, signal) => store.keys(filter, most, signal),
    async reset(filter: KeyFilter, signal) {
      const freed = await store.reset(filter, signal)
      local.reset(filter.matches)
      return freed
    },
    async close() {
      clearInterval(timer)
      for (const breaker of breakers.values()) breaker.stop()
      await Promise.all([store.close(), local.close()])
    },
  }
}

function unavailable(cause: Error | undefined): Failure {
  return new Failure(serviceUnavailable('The rate limits cannot be checked at the moment.', cause))
}
