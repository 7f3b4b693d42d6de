import { serviceUnavailable } from '../errors.ts'
import { type Breaker, createBreaker } from './breaker.ts'
import { createDeadlines } from './deadlines.ts'
import type { KeyFilter, Quota } from './limit.ts'
import { MemoryStore } from './memory-store.ts'
import type { Allowance, Charge, Mode, RemoteStore, Store } from './store.ts'

/** What decides while the store is out of reach: counters in this process, nothing, or a 503. */
export type OutageMode = 'local' | 'allow' | 'deny'

export interface OutageOptions {
  readonly onOutage: OutageMode
  /** Longest that one decision waits for the store. */
  readonly timeoutMs?: number
  /** Gateways that share the limits: under `local` each takes its part. */
  readonly instances?: number
  /** Failures in a row after which a server is not asked again until it answers a probe. */
  readonly failures?: number
  readonly probeEveryMs?: number
  /** How often servers are probed of which nobody asked anything meanwhile. */
  readonly idleEveryMs?: number
  /** Told of each decision that the stand-in took, or refused to take under `deny`. */
  readonly onStandIn?: () => void
  /** Told of every change of what decides: of one of the store's servers, with the failure that caused it. */
  readonly onChange?: (change: OutageChange) => void
  /** What counts under `local`. */
  readonly local?: Store
}

export interface OutageChange {
  /** What decides for this server's keys from now on. */
  readonly mode: 'store' | OutageMode
  readonly server: string
  /** Does any server of the store fail now? */
  readonly degraded: boolean
  readonly cause: Error | undefined
}

/** A store that never makes a caller wait longer than `timeoutMs`, and fails the way the operator chose. */
export interface OutageStore extends Store {
  /** `store`, or what `onOutage` says while any server of the store is not asked. */
  mode(): 'store' | OutageMode
  /** Asks every server once; of those that fail, none is asked again until it answers a probe. */
  begin(): Promise<void>
  /** Probes every server that is asked: some connection was lost. */
  look(): void
  /** No server is asked any more until it answers a probe. */
  fail(cause: Error): void
}

/** Wraps a store that may be slow, silent or gone. Under `deny` it rejects with a ServiceUnavailable. */
export function withOutage(store: RemoteStore, options: OutageOptions): OutageStore {
  const { onOutage, timeoutMs = 100, instances = 1, failures = 3, probeEveryMs = 250, onChange } = options
  const { idleEveryMs = 2000, onStandIn } = options
  const local = options.local ?? new MemoryStore()
  const deadlines = createDeadlines(timeoutMs)
  const breakers = new Map<string, Breaker>()
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
        probe: (key) => deadlines.bound(store.probe(keptBy(server, key))),
        reconnect: (key) => store.reconnect(keptBy(server, key)),
        onChange(closed, cause) {
          open += closed ? -1 : 1
          onChange?.({ mode: closed ? 'store' : onOutage, server, degraded: open > 0, cause })
        },
      })
      breakers.set(server, breaker)
    }
    return breaker
  }

  /** Without callers, an outage is to be seen too; and servers that left a cluster are to be forgotten. */
  function lookAround(): void {
    const servers = new Map(store.samples().map((key) => [store.server(key), key]))
    for (const [server, breaker] of breakers) {
      if (!breaker.isClosed() || servers.has(server)) continue
      breaker.stop()
      breakers.delete(server)
    }
    for (const [server, key] of servers) breakerOf(server).idle(key)
  }
  const timer = setInterval(lookAround, idleEveryMs).unref()

  /** Asks the store where it can be asked; else, or when it fails, the stand-in. */
  async function guarded<T>(
    key: string,
    ask: () => Promise<T> | T,
    standIn: (cause: Error | undefined) => Promise<T> | T,
    sinceMs?: number,
  ): Promise<T> {
    const breaker = breakerOf(store.server(key))
    const isLate = sinceMs !== undefined && performance.now() - sinceMs >= timeoutMs
    if (isLate || !breaker.isClosed()) return await standIn(undefined)
    const asked = ask()
    if (!(asked instanceof Promise)) return asked
    try {
      const answer = await deadlines.bound(asked, sinceMs)
      breaker.succeeded()
      return answer
    } catch (error) {
      breaker.failed(error as Error, key)
      return await standIn(error as Error)
    }
  }

  function chargeStandIn(quotas: readonly Quota[], cause: Error | undefined): Charge | Promise<Charge> {
    onStandIn?.()
    if (onOutage === 'deny') throw unavailable(cause)
    if (onOutage === 'allow') return { admitted: true, allowances: [], mode: 'allow' }
    return asLocal(local.charge(share(quotas, instances)))
  }

  return {
    mode: () => (open > 0 ? onOutage : 'store'),
    async begin() {
      const probes = store.samples().map(async (key) => {
        const breaker = breakerOf(store.server(key))
        await deadlines.bound(store.probe(key)).catch((error: Error) => breaker.trip(error, key))
      })
      await Promise.all(probes)
    },
    look() {
      for (const key of store.samples()) breakerOf(store.server(key)).look(key)
    },
    fail(cause) {
      for (const key of store.samples()) breakerOf(store.server(key)).trip(cause, key)
    },
    charge(quotas, sinceMs) {
      const { key } = quotas[0]!
      return guarded(
        key,
        () => store.charge(quotas),
        (cause) => chargeStandIn(quotas, cause),
        sinceMs,
      )
    },
    async peek(quotas, sinceMs): Promise<readonly Allowance[]> {
      if (quotas.length === 0) return []
      return await guarded(
        quotas[0]!.key,
        () => store.peek(quotas),
        (cause) => {
          if (onOutage === 'deny') throw unavailable(cause)
          // Under `allow` nothing is counted, so that all of a limit is there.
          return local.peek(onOutage === 'local' ? share(quotas, instances) : quotas)
        },
        sinceMs,
      )
    },
    keys: (filter) => store.keys(filter),
    async reset(filter: KeyFilter): Promise<number> {
      const [freed] = await Promise.all([store.reset(filter), local.reset(filter)])
      return freed
    },
    async once(key, ttlMs) {
      return await guarded(
        key,
        () => store.once(key, ttlMs),
        (cause) => {
          if (onOutage === 'deny') throw unavailable(cause)
          return local.once(key, ttlMs)
        },
      )
    },
    async close() {
      clearInterval(timer)
      for (const breaker of breakers.values()) breaker.stop()
      await Promise.all([store.close(), local.close()])
    },
  }
}

/** Each instance's part of the limits, at least 1; a limit of 0 stays one that refuses all. */
function share(quotas: readonly Quota[], instances: number): readonly Quota[] {
  if (instances === 1) return quotas
  return quotas.map((quota) => ({
    ...quota,
    limit: quota.limit === 0 ? 0 : Math.max(1, Math.floor(quota.limit / instances)),
  }))
}

async function asLocal(charge: Charge | Promise<Charge>): Promise<Charge> {
  const mode: Mode = 'local'
  return { ...(await charge), mode }
}

function unavailable(cause: Error | undefined) {
  return serviceUnavailable('The rate limits cannot be checked at the moment.', cause)
}
