import { Failure, serviceUnavailable } from '../../errors.ts'
import { Health } from '../../health.ts'
import type { KeyFilter } from '../key.ts'
import { isProof, type Quota } from '../limit.ts'
import { TimeoutError } from '../redis/deadlines.ts'
import type { RedisStore } from '../redis/store.ts'
import { type Allowance, type Charge, DamagedKeyError } from '../store.ts'
import { createLocalCounters } from './local-counters.ts'

/** Action while the store is unavailable: count in this process, admit every call, or refuse with a 503. */
type OutageMode = 'local' | 'allow' | 'deny'
type Mode = 'store' | OutageMode

export interface FallbackOptions {
  readonly onOutage: OutageMode
  /** Gateways that share the limits under `local`. Default: those that the store counts, at least `processes`. */
  readonly instances?: number | undefined
  readonly processes?: number | undefined
  /** Pause between two probes of a failing server, and minimum time from the first to the last of 3 failures. */
  readonly probeEveryMs?: number
  /** Pause between two probes of a server that is up. */
  readonly idleEveryMs?: number
  /** Called for each decision that the fallback makes, or refuses to make under `deny`. */
  readonly onFallback?: () => void
  /** Called once when a server goes down, and when it is up again. */
  readonly onChange?: (change: OutageChange) => void
  /** Called whenever a decision needs a key that is damaged. */
  readonly onDamaged?: (key: string) => void
}

export interface OutageChange {
  /** The decider for the keys of `server` from now on. */
  readonly mode: Mode
  readonly server: string
  /** True if any server of the store is down now. */
  readonly degraded: boolean
  readonly cause: Error | undefined
}

/** A store of several servers, which may fail one by one. */
export type RemoteStore = Omit<RedisStore, 'connect' | 'overrides'>
export type FallbackStore = ReturnType<typeof withFallback>

const RECONNECT_EVERY_MS = 1000
const RESTORED_AT_ONCE = 64

const unavailable = (cause: Error | undefined) =>
  new Failure(serviceUnavailable('The rate limits cannot be checked at the moment.', cause))

/**
 * Wraps a store in a circuit breaker for each server. The fallback decides requests that fail or time out. After 3 failures in a
 * row, 250 ms from the first to the last, the server is down: the fallback decides at once, a silent connection is replaced, and
 * a probe is sent every 250 ms until one succeeds. Then the calls counted here are written back. Idle servers are probed too.
 */
export function withFallback(store: RemoteStore, options: FallbackOptions) {
  const { onOutage, instances, processes = 1, probeEveryMs = 250, idleEveryMs = 2000 } = options
  const local = createLocalCounters()
  const breakers = new Map<string, Health>()
  const restoring = new Set<string>()
  let down = 0

  function breakerOf(server: string): Health {
    const existing = breakers.get(server)
    if (existing) return existing
    let reconnectedAt = Number.NEGATIVE_INFINITY
    /** Replaces a silent connection, which never recovers by itself; a connection with errors need not be replaced. */
    const heal = (cause: Error): void => {
      const now = performance.now()
      if (!(cause instanceof TimeoutError) || now - reconnectedAt < RECONNECT_EVERY_MS) return
      reconnectedAt = now
      store.reconnect(server)
    }
    const changed = (mode: Mode, cause?: Error): void => {
      down += mode === 'store' ? -1 : 1
      options.onChange?.({ mode, server, degraded: down > 0, cause })
    }
    const breaker = new Health({
      failures: 3,
      spanMs: probeEveryMs,
      backoffMs: probeEveryMs,
      probe: () => store.probe(server),
      onDown(cause) {
        changed(onOutage, cause)
        heal(cause)
      },
      onProbeFailed: heal,
      onUp: () => changed('store'),
      onRecovered: () => void restore(server),
    })
    breakers.set(server, breaker)
    return breaker
  }

  store.onReply = (server, error) => {
    const breaker = breakerOf(server)
    // Only a probe ends an outage.
    if (!breaker.up) return
    if (error) breaker.failed(error)
    else breaker.succeeded()
  }

  /** Writes back the calls that were counted here, some keys at a time; stops if the server fails again. */
  async function restore(server: string): Promise<void> {
    if (restoring.has(server)) return
    restoring.add(server)
    const write = async (quota: Quota) => local.restored(quota, await store.charge([quota]))
    const counted = local.counted((key) => store.server(key) === server)
    for (let i = 0; i < counted.length; i += RESTORED_AT_ONCE) {
      const ends = await Promise.allSettled(counted.slice(i, i + RESTORED_AT_ONCE).map(write))
      if (ends.every(({ status }) => status === 'rejected')) break
    }
    restoring.delete(server)
  }

  const check = (): void => {
    for (const server of store.servers()) breakerOf(server).check()
  }
  const timer = setInterval(() => {
    const servers = new Set(store.servers())
    for (const [server, breaker] of breakers) {
      // A server that is down stays until a probe succeeds, also if it has left the cluster.
      if (!breaker.up || servers.has(server)) continue
      breaker.stop()
      breakers.delete(server)
    }
    check()
  }, idleEveryMs).unref()

  const isUp = (quotas: readonly Quota[]): boolean => breakerOf(store.server(quotas[0]!.key)).up
  const gateways = (): number => instances ?? Math.max(processes, store.gateways())

  function chargeFallback(quotas: readonly Quota[], cause?: Error): Charge | Promise<never> {
    if (cause instanceof DamagedKeyError) options.onDamaged?.(cause.key)
    options.onFallback?.()
    if (onOutage === 'deny') return Promise.reject(unavailable(cause))
    if (onOutage === 'local') return local.charge(quotas, gateways())
    // Under `allow` too, a DPoP proof is accepted only once.
    const proofs = quotas.filter(isProof)
    const admitted = proofs.length === 0 || local.charge(proofs, 1).admitted
    return { admitted, allowances: [], mode: 'allow' }
  }

  return {
    /** Returns `store`, or `onOutage` while any server of the store is down. */
    mode: (): Mode => (down > 0 ? onOutage : 'store'),
    /** Probes every server once; a server that fails is down. */
    begin: () =>
      Promise.all(
        store.servers().map((server) => store.probe(server).catch((error) => breakerOf(server).trip(error))),
      ),
    /** Probes every server that is up, after the loss of a connection. */
    check,
    /** Takes every server down until it answers a probe. */
    fail(cause: Error): void {
      for (const server of store.servers()) breakerOf(server).trip(cause)
    },
    charge(quotas: readonly Quota[]): Charge | Promise<Charge> {
      if (!isUp(quotas)) return chargeFallback(quotas)
      return store.charge(quotas).then(
        (charge) => {
          if (onOutage === 'local') local.recordAnswer(quotas, charge)
          return charge
        },
        (error: Error) => chargeFallback(quotas, error),
      )
    },
    async peek(quotas: readonly Quota[]): Promise<readonly Allowance[]> {
      if (quotas.length === 0) return []
      const found = isUp(quotas) ? await store.peek(quotas).catch((error: Error) => error) : undefined
      if (found !== undefined && !(found instanceof Error)) return found
      if (onOutage === 'deny') throw unavailable(found)
      // Under `allow` nothing is counted, so the whole limit remains.
      return await local.peek(quotas, onOutage === 'local' ? gateways() : 1)
    },
    keys: store.keys,
    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      const freed = await store.reset(filter, signal)
      local.reset(filter.matches)
      return freed
    },
    async close(): Promise<void> {
      clearInterval(timer)
      for (const breaker of breakers.values()) breaker.stop()
      await Promise.all([store.close(), local.close()])
    },
  }
}
