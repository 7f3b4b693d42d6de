import type { StoreConfig } from '../config/schema.ts'
import { prefixOf } from '../limit/key.ts'
import { MemoryStore } from '../limit/memory/store.ts'
import { type FallbackStore, withFallback } from '../limit/fallback/store.ts'
import { RedisStore } from '../limit/redis/store.ts'
import { StoreConfigError } from '../limit/redis/diagnose.ts'
import type { Store } from '../limit/store.ts'
import { atMostEvery } from '../observe/at-most-every.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'

/** The counters, and what their keys start with. */
export interface Counters {
  readonly store: Store
  /** What `store` asks, without what stands in for it. */
  readonly counters: Pick<Store, 'peek'>
  readonly prefix: string
  /** Can calls be decided as configured, so that the gateway is of use? */
  ready(): boolean
}

/** How often a damaged key is logged. */
const DAMAGED_MS = 10_000

const MODES = ['store', 'local', 'allow', 'deny'] as const

/**
 * Opens the store of a configuration; log and metrics hear of its outages, once each. A Redis that is out of reach is no
 * error; one that is not what the configuration says rejects with words for the operator.
 */
export async function openCounters(config: StoreConfig, log: Log, metrics: Metrics): Promise<Counters> {
  const show = (now: (typeof MODES)[number]): void => {
    for (const mode of MODES) metrics.storeMode.set({ mode }, mode === now ? 1 : 0)
    metrics.storeUp.set(now === 'store' ? 1 : 0)
  }
  const prefix = prefixOf(config)
  if (config === 'memory') {
    show('store')
    const store = new MemoryStore()
    return { store, counters: store, prefix, ready: () => true }
  }

  const { redis, timeoutMs, onOutage, instances, processes } = config
  metrics.standIns.inc({ mode: onOutage }, 0)
  const remote = new RedisStore({
    ...redis,
    prefix,
    timeoutMs,
    onLost: () => store.check(),
    onWrong(error) {
      log.error({ mode: onOutage }, error.message)
      store.fail(error)
    },
    onWarning: (warning) => log.warn(warning),
    onEmptied: ({ countedUntil, emptySince }) =>
      log.warn(
        { countedUntil: new Date(countedUntil), emptySince: new Date(emptySince) },
        'Redis came back without its data; the calls counted before are lost',
      ),
  })
  const store: FallbackStore = withFallback(remote, {
    onOutage,
    instances,
    processes,
    onDamaged: atMostEvery(DAMAGED_MS, (key: string) =>
      log.error({ key, mode: onOutage }, 'Redis key damaged; its calls are decided without Redis'),
    ),
    onFallback: () => metrics.standIns.inc({ mode: onOutage }),
    onChange({ mode, server, degraded, cause }) {
      show(degraded ? onOutage : 'store')
      if (mode === 'store') log.info({ server, mode }, 'Redis decides again')
      // What is wrong was told already, in words that say more.
      else if (!(cause instanceof StoreConfigError)) {
        log.warn({ server, mode, cause: cause?.message }, `Redis does not answer; ${WORDS[mode]}`)
      }
    },
  })
  if (!(await remote.connect())) await store.begin()
  show(store.mode())
  return { store, counters: remote, prefix, ready: () => onOutage !== 'deny' || store.mode() === 'store' }
}

const WORDS = {
  local: 'counting in this process until it does',
  allow: 'letting every call pass until it does',
  deny: 'refusing limited calls with 503 until it does',
} as const
