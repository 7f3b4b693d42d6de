import { Failure, serviceUnavailable } from '../../errors.ts'
import { Health } from '../../health.ts'
import { isProof, type Quota } from '../limit.ts'
import { TimeoutError } from '../redis/deadlines.ts'
import type { RedisStore } from '../redis/store.ts'
import { type Charge, DamagedKeyError, type Store } from '../store.ts'
import { createLocalCounters } from './local-counters.ts'

/** What decides while the store is out of reach: counters in this process, nothing, or a 503. */
export type OutageMode = 'local' | 'allow' | 'deny'

export interface FallbackOptions {
  readonly onOutage: OutageMode
  /** Gateways that share the limits, in place of those that the store counts; under `local` each takes its part. */
  readonly instances?: number | undefined
  /** Gateways that there are at least; default 1. */
  readonly processes?: number | undefined
  /** The pause between two probes of a failing server, and the shortest time from the first to the last of 3 failures. */
  readonly probeEveryMs?: number
  /** How often each server is probed that does not fail. */
  readonly idleEveryMs?: number
  /** Called for each decision that the fallback makes, or refuses to make under `deny`. */
  readonly onFallback?: () => void
  /** Called once when a server goes down, and when it is up again. */
  readonly onChange?: (change: OutageChange) => void
  /** Gets the key whenever a decision needs one that is damaged. */
  readonly onDamaged?: (key: string) => void
}

export interface OutageChange {
  /** What decides for this server's keys from now on. */
  readonly mode: 'store' | OutageMode
  readonly server: string
  /** True if any server of the store is down now. */
  readonly degraded: boolean
  readonly cause: Error | undefined
}

/** A store on one or several servers. Any of them may fail. */
export type RemoteStore = Omit<RedisStore, 'connect' | 'overrides'>

/** A store that fails the way the operator chose. */
export interface FallbackStore extends Store {
  /** `store`, or `onOutage` while any server of the store is down. */
  mode(): 'store' | OutageMode
  /** Probes every server once; those that fail are down. */
  begin(): Promise<void>
  /** Probes every server that is up: a connection was lost. */
  check(): void
  /** Takes every server down until it answers a probe. */
  fail(cause: Error): void
}

const FAILURES = 3
const RECONNECT_EVERY_MS = 1000
const RESTORED_AT_ONCE = 64

/**
 * Wraps a store that may fail in a circuit breaker for each server. A question without an answer within `timeout` (100 ms unless
 * set) is decided by the fallback; under `deny` that rejects with a 503. After 3 failures in a row, 250 ms from the first to the
 * last, the server is down: the fallback decides at once, a silent connection is replaced, and a probe is sent every 250 ms until
 * one succeeds. Then the calls counted here are written back. A server without callers is probed every 2 s.
 */
export function withFallback(store: RemoteStore, options: FallbackOptions): FallbackStore {
  const { onOutage, instances, processes = 1, probeEveryMs = 250, idleEveryMs = 2000 } = options
  const local = createLocalCounters()
  const breakers = new Map<string, Health>()
  const restoring = new Set<string>()
  let down = 0

  function breakerOf(server: string): Health {
    const known = breakers.get(server)
    if (known !== undefined) return known
    let reconnectedAt = Number.NEGATIVE_INFINITY
    /** A silent connection never recovers by itself; one that answers with errors need not be replaced. */
    const heal = (cause: Error): void => {
      const now = performance.now()
      if (!(cause instanceof TimeoutError) || now - reconnectedAt < RECONNECT_EVERY_MS) return
      reconnectedAt = now
      store.reconnect(server)
    }
    const changed = (mode: 'store' | OutageMode, cause: Error | undefined): void => {
      down += mode === 'store' ? -1 : 1
      options.onChange?.({ mode, server, degraded: down > 0, cause })
    }
    const breaker = new Health({
      failures: FAILURES,
      spanMs: probeEveryMs,
      backoffMs: probeEveryMs,
      probe: () => store.probe(server),
      onDown(cause) {
        changed(onOutage, cause)
        heal(cause)
      },
      onProbeFailed: heal,
      onUp: () => changed('store', undefined),
      onRecovered: () => void restore(server),
    })
    breakers.set(server, breaker)
    return breaker
  }

  store.onReply = (server, error) => {
    // While it is down, only a probe brings it back.
    const breaker = breakerOf(server)
    if (!breaker.up) return
    if (error === undefined) breaker.succeeded()
    else breaker.failed(error)
  }

  /** Writes back the calls that were counted here, some keys at a time; ends if the server fails again. */
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

  const check = (): void => {
    for (const server of store.servers()) breakerOf(server).check()
  }
  /** An outage is noticed without callers too, and servers that left a cluster are forgotten. */
  const timer = setInterval(() => {
    const servers = new Set(store.servers())
    for (const [server, breaker] of breakers) {
      if (!breaker.up || servers.has(server)) continue
      breaker.stop()
      breakers.delete(server)
    }
    check()
  }, idleEveryMs).unref()

  const isUp = (quotas: readonly Quota[]): boolean => breakerOf(store.server(quotas[0]!.key)).up
  const gateways = (): number => instances ?? Math.max(processes, store.gateways())

  function chargeFallback(quotas: readonly Quota[], cause: Error | undefined): Charge | Promise<never> {
    if (cause instanceof DamagedKeyError) options.onDamaged?.(cause.key)
    options.onFallback?.()
    if (onOutage === 'deny') return Promise.reject(unavailable(cause))
    if (onOutage === 'local') return local.charge(quotas, gateways())
    // A DPoP proof passes only once even so.
    const proofs = quotas.filter(isProof)
    const admitted = proofs.length === 0 || local.charge(proofs, 1).admitted
    return { admitted, allowances: [], mode: 'allow' }
  }

  return {
    mode: () => (down > 0 ? onOutage : 'store'),
    async begin() {
      const probe = (server: string) =>
        store.probe(server).catch((error: Error) => breakerOf(server).trip(error))
      await Promise.all(store.servers().map(probe))
    },
    check,
    fail(cause) {
      for (const server of store.servers()) breakerOf(server).trip(cause)
    },
    charge(quotas) {
      if (!isUp(quotas)) return chargeFallback(quotas, undefined)
      return store.charge(quotas).then(
        (charge) => {
          if (onOutage === 'local') local.note(quotas, charge)
          return charge
        },
        (error: Error) => chargeFallback(quotas, error),
      )
    },
    async peek(quotas) {
      if (quotas.length === 0) return []
      const found = isUp(quotas) ? await store.peek(quotas).catch((error: Error) => error) : undefined
      if (found !== undefined && !(found instanceof Error)) return found
      if (onOutage === 'deny') throw unavailable(found)
      // Nothing is counted under `allow`, so the whole limit is left.
      return local.peek(quotas, onOutage === 'local' ? gateways() : 1)
    },
    keys: (filter, max, signal) => store.keys(filter, max, signal),
    async reset(filter, signal) {
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
