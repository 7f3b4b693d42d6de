import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client'
import { VERSION } from './version.ts'
import type { MetricValues } from './metrics-sum.ts'
import { durations, tally } from './tallies.ts'

/** Seconds; from a cache hit on loopback to a patient upstream. */
const REQUEST_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const STORE_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25]

export type Metrics = ReturnType<typeof createMetrics>

/**
 * Everything that `/metrics` shows. No label takes a value that callers choose. An `aggregator` says what several processes
 * show of a gauge; where there is none, they are added up.
 */
export function createMetrics() {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]

  new Gauge({
    name: 'sluice_build_info',
    help: 'Which Sluice this is; always 1.',
    labelNames: ['version', 'node'],
    registers,
    aggregator: 'first',
  }).set({ version: VERSION, node: process.versions.node }, 1)

  const lastReload = new Gauge({
    name: 'sluice_config_last_reload_successful',
    help: 'Was the configuration taken when it was last read?',
    registers,
    aggregator: 'max',
  })
  const lastReloadAt = new Gauge({
    name: 'sluice_config_last_reload_success_timestamp_seconds',
    help: 'When a configuration was last taken.',
    registers,
    aggregator: 'max',
  })
  const failedReloads = new Counter({
    name: 'sluice_config_reload_failures_total',
    help: 'How often a configuration was read anew and not taken.',
    registers,
  })
  const configHash = new Gauge({
    name: 'sluice_config_hash_info',
    help: 'Which configuration is in force; always 1.',
    labelNames: ['hash'],
    registers,
    aggregator: 'first',
  })

  let readUpstreams: ReadUpstreams | undefined
  const upstreams = new Gauge({
    name: 'sluice_upstream_up',
    help: 'Is this address of an upstream in use? 0 while it is passed over because it failed.',
    labelNames: ['upstream', 'address'],
    aggregator: 'min',
    registers,
    collect() {
      upstreams.reset()
      for (const { upstream, address, up } of readUpstreams?.() ?? [])
        upstreams.set({ upstream, address }, up ? 1 : 0)
    },
  })

  let readKeys: ReadKeys | undefined
  const keysAge = new Gauge({
    name: 'sluice_issuer_keys_age_seconds',
    help: 'How long ago the keys of an issuer were last read; where they never were, how long that has been tried.',
    labelNames: ['issuer'],
    aggregator: 'max',
    registers,
    collect() {
      keysAge.reset()
      for (const { issuer, ageSeconds } of readKeys?.() ?? []) keysAge.set({ issuer }, ageSeconds)
    },
  })

  const droppedSockets = new Counter({
    name: 'sluice_dropped_sockets_total',
    help: 'Sockets closed at once because so many were open, in all or from one address.',
    labelNames: ['bound'],
    registers,
  })
  for (const bound of ['maxConnections', 'maxConnectionsPerAddress']) droppedSockets.inc({ bound }, 0)

  return {
    /** Where it is read which addresses of upstreams are in use. */
    watchUpstreams: (read: ReadUpstreams): void => void (readUpstreams = read),
    /** Where it is read how old the keys of the issuers are. */
    watchKeys: (read: ReadKeys): void => void (readKeys = read),
    /** A configuration came into force, in place of the one with the hash `before`. */
    configLoaded(hash: string, before = hash): void {
      configHash.remove({ hash: before })
      configHash.set({ hash }, 1)
      lastReload.set(1)
      lastReloadAt.setToCurrentTime()
    },
    /** A configuration was refused. */
    configFailed(): void {
      failedReloads.inc()
      lastReload.set(0)
    },
    requests: tally(registry, {
      name: 'sluice_http_requests_total',
      help: 'Requests answered, by who answered: the gateway itself or the upstream.',
      labelNames: ['route', 'method', 'code', 'source'],
    }),
    requestSeconds: durations(registry, {
      name: 'sluice_http_request_duration_seconds',
      help: 'From the head of a request to the end of its answer.',
      buckets: REQUEST_BUCKETS,
    }),
    upstreamSeconds: durations(registry, {
      name: 'sluice_upstream_duration_seconds',
      help: 'From forwarding a request to the head of the answer.',
      labelNames: ['upstream'],
      buckets: REQUEST_BUCKETS,
    }),
    decisions: tally(registry, {
      name: 'sluice_limit_decisions_total',
      help: 'Decisions of each limit: within, near (80 % used), over, over_cached (answered without the store), shadow_over.',
      labelNames: ['limit', 'outcome'],
    }),
    storeSeconds: durations(registry, {
      name: 'sluice_store_duration_seconds',
      help: 'How long decisions waited for the store.',
      buckets: STORE_BUCKETS,
    }),
    storeUp: new Gauge({
      name: 'sluice_store_up',
      help: 'Does the store answer, and so decide (every worker)?',
      registers,
      aggregator: 'min',
    }),
    storeMode: new Gauge({
      name: 'sluice_store_mode',
      help: '1 for the mode that decides now, in any worker: store, or what store.onOutage says.',
      labelNames: ['mode'],
      registers,
      aggregator: 'max',
    }),
    standIns: new Counter({
      name: 'sluice_store_stand_in_decisions_total',
      help: 'Decisions that the store did not take in time, by what stood in: local, allow, or deny, which answers 503.',
      labelNames: ['mode'],
      registers,
    }),
    droppedSockets,
    workers: new Gauge({ name: 'sluice_workers', help: 'Processes that serve callers.', registers }),
    workerEnds: new Counter({
      name: 'sluice_worker_ends_total',
      help: 'Workers that ended unasked, and were started again.',
      registers,
    }),
    contentType: registry.contentType,
    /** The same as values that travel, to be added to those of other processes. */
    values: (): Promise<MetricValues> => registry.getMetricsAsJSON(),
    /** The text of `/metrics`. */
    text: (): Promise<string> => registry.metrics(),
  }
}

type ReadKeys = () => readonly { issuer: string; ageSeconds: number }[]
type ReadUpstreams = () => readonly { upstream: string; address: string; up: boolean }[]
