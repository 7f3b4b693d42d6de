import type { StoreConfig } from './config/schema.ts'
import { MemoryStore } from './limit/memory-store.ts'
import { type OutageStore, withOutage } from './limit/outage.ts'
import { RedisStore } from './limit/redis-store.ts'
import type { Store } from './limit/store.ts'
import type { Log } from './observe/log.ts'
import type { Metrics } from './observe/metrics.ts'

/** The counters, and what their keys start with. */
export interface Counters {
  readonly store: Store
  readonly prefix: string
  /** Can calls be decided as configured, so that the gateway is of use? */
  ready(): boolean
}

const MODES = ['store', 'local', 'allow', 'deny'] as const

/**
 * Opens the store of a configuration; log and metrics hear of its outages, once each. A Redis that is out of reach is no
 * error; one that is not what the configuration says rejects with words for the operator.
 */
export async function openCounters(config: StoreConfig, log: Log, metrics: Metrics): Promise<Counters> {
  const setMode = (now: (typeof MODES)[number]): void => {
    for (const mode of MODES) metrics.storeMode.set({ mode }, mode === now ? 1 : 0)
  }
  setMode('store')
  if (config === 'memory') {
    metrics.storeUp.set(1)
    return { store: new MemoryStore(), prefix: 'sluice', ready: () => true }
  }

  const { redis, prefix, timeoutMs, onOutage, instances } = config
  let connected = false
  let failing = false
  let wrong = false
  const showUp = (): void => metrics.storeUp.set(connected && !failing && !wrong ? 1 : 0)
  showUp()
  const remote = new RedisStore({
    ...redis,
    prefix,
    givenUpAfterMs: timeoutMs,
    onConnection(up) {
      connected = up
      showUp()
    },
    onWrong(error) {
      wrong = error !== undefined
      showUp()
      if (error !== undefined) log.error(error.message)
    },
    onWarning: (warning) => log.warn(warning),
  })
  const store: OutageStore = withOutage(remote, {
    onOutage,
    instances,
    timeoutMs,
    onChange({ mode, server, degraded, cause }) {
      failing = degraded
      if (!degraded) wrong = false
      setMode(degraded ? onOutage : 'store')
      showUp()
      if (mode === 'store') log.info({ server }, 'Redis decides again')
      else log.warn({ server, cause: cause?.message }, `Redis does not answer; ${WORDS[mode]}`)
    },
  })
  await remote.connect()
  if (!connected) log.warn('Redis cannot be reached; trying again')
  return {
    store,
    prefix,
    ready: () => onOutage !== 'deny' || (connected && !wrong && store.mode() === 'store'),
  }
}

const WORDS = {
  local: 'counting in this process until it does',
  allow: 'letting every call pass until it does',
  deny: 'refusing limited calls with 503 until it does',
} as const
