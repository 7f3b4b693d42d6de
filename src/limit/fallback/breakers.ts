import { Health } from '../../health.ts'
import { type Clock, SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { OutageMode } from '../quota.ts'
import { type RemoteStore, TimeoutError } from '../store.ts'

export type Mode = 'store' | OutageMode

export interface BreakerOptions {
  readonly onOutage: OutageMode
  readonly clock?: Clock
  /** Pause between two probes of a failing server, and minimum time from the first to the last of 3 failures. */
  readonly probeEveryMs?: number
  /** Pause between two probes of a server that is up. */
  readonly idleEveryMs?: number
  /** Called once when a server goes down, and when it is up again. */
  readonly onChange?: (change: OutageChange) => void
}

export interface OutageChange {
  /** The decider for the keys of `server` from now on. */
  readonly mode: Mode
  readonly server: string
  /** True if any server of the store is down now. */
  readonly degraded: boolean
  readonly cause: Error | undefined
}

/**
 * Creates a circuit breaker for each server. After 3 failures in a row, 250 ms from the first to
 * the last, the server is down: a silent connection is replaced, and a probe is sent every 250 ms
 * until one succeeds. A server that refuses a write because it is full is down at once, until it has
 * room. Servers that are up are probed too.
 */
export function createBreakers(store: RemoteStore, options: BreakerOptions) {
  const { onOutage, clock = SYSTEM_CLOCK, probeEveryMs = 250, idleEveryMs = 2000 } = options
  const breakers = new Map<string, Health>()
  const isDegraded = (): boolean => [...breakers.values()].some(({ up }) => !up)

  function breakerOf(server: string): Health {
    const existing = breakers.get(server)
    if (existing) return existing
    /** True in an outage because the server is full. */
    let wasFull = false
    /**
     * Replaces a silent connection, which never recovers by itself, and a connection to a wrong
     * server: after a failover, its name leads to another one. A connection with errors stays.
     */
    const heal = (cause: Error): void => {
      if (cause instanceof TimeoutError || cause.name === 'StoreConfigError') store.reconnect(server, cause)
    }
    const changed = (mode: Mode, cause?: Error): void =>
      options.onChange?.({ mode, server, degraded: isDegraded(), cause })
    const breaker = new Health({
      failures: 3,
      spanMs: probeEveryMs,
      backoffMs: probeEveryMs,
      probe: () => store.probe(server, wasFull),
      onDown(cause) {
        wasFull = store.isFull(cause)
        changed(onOutage, cause)
        heal(cause)
      },
      onProbeFailed(cause) {
        wasFull ||= store.isFull(cause)
        heal(cause)
      },
      onUp: () => changed('store'),
      clock,
    })
    breakers.set(server, breaker)
    return breaker
  }

  store.listen((server, error) => {
    const breaker = breakerOf(server)
    // Only a probe ends an outage.
    if (!breaker.up) return
    if (error === undefined) return breaker.succeeded()
    // Between two failures, keys expire, and a few calls succeed: these must not hide the outage.
    if (store.isFull(error)) return breaker.trip(error)
    breaker.failed(error)
    breaker.check()
  })

  const probe = (server: string) => store.probe(server).catch((error: Error) => breakerOf(server).trip(error))
  const check = (): void => {
    for (const server of store.servers()) breakerOf(server).check()
  }
  const stopChecking = clock.every(idleEveryMs, () => {
    const servers = new Set(store.servers())
    for (const [server, breaker] of breakers) {
      // A server that is down stays until a probe succeeds, also if it has left the cluster.
      if (!breaker.up || servers.has(server)) continue
      breaker.stop()
      breakers.delete(server)
    }
    check()
  })

  return {
    isUp: (server: string): boolean => breakerOf(server).up,
    isDegraded,
    /** Probes every server once; a server that fails is down. */
    begin: () => Promise.all(store.servers().map(probe)),
    check,
    /** Takes every server down until it answers a probe. */
    fail(cause: Error): void {
      for (const server of store.servers()) breakerOf(server).trip(cause)
    },
    close(): void {
      stopChecking()
      for (const breaker of breakers.values()) breaker.stop()
    },
  }
}
