import type { StoreConfig } from '../config/compile.ts'
import { type FallbackStore, withFallback } from '../limit/fallback/store.ts'
import { instant } from '../runtime/instant.ts'
import { prefixOf } from '../limit/key.ts'
import { createMemoryStore } from '../limit/memory/store.ts'
import { createLiveOverrides, type LiveOverridesOptions } from './overrides-live.ts'
import { createMemoryFields } from '../limit/shared-fields.ts'
import { showCaller } from '../policy/counted.ts'
import type { Override } from '../policy/overrides.ts'
import { type Log, throttle } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'

const DAMAGED_LOG_MS = 10_000
/**
 * Pauses before a log line about decisions of the fallback while Redis is available: before the
 * first, and before the next.
 */
const FALLBACK_LOG_MS = [1000, 10_000] as const

const MODE_CHANGED = {
  store: 'Redis available again',
  local: 'Redis unavailable; counting in this process',
  allow: 'Redis unavailable; admitting every call',
  deny: 'Redis unavailable; refusing limited calls with 503',
}
type Mode = keyof typeof MODE_CHANGED

const MAX_LOGGED = 20
const NO_OUTAGE = () => ({ outages: 0, withoutRedis: 0 })
const NOT_SHARED = () => Promise.reject(new Error('Counters in memory are not shared.'))

const logged = (overrides: readonly Override[]): readonly string[] =>
  overrides.slice(0, MAX_LOGGED).map(({ caller, name, limit, untilAt, by, note }) => {
    const end = untilAt === undefined ? 'permanent' : `until ${instant(untilAt)}`
    return `${showCaller(caller)} ${name}=${limit}, ${end}${by ? `, by ${by}` : ''}${note ? `: ${note}` : ''}`
  })

interface StoreHooks {
  /** Returns a key as it may be shown. */
  readonly showKey: (key: string) => string
  /** Called when Redis is available again: what the fallback refused may pass. */
  readonly onAvailable: () => void
}

/**
 * Opens the store, the overrides, and `shareSummary`. `ready`: calls can be decided as configured.
 * `renew` makes new connections to Redis use another login. Rejects if Redis contradicts the configuration.
 */
export async function openStore(
  config: StoreConfig,
  log: Log,
  metrics: Metrics,
  { showKey, onAvailable }: StoreHooks,
  clock = SYSTEM_CLOCK,
) {
  function show(...now: readonly Mode[]): void {
    for (const mode of Object.keys(MODE_CHANGED) as Mode[])
      metrics.storeMode.set({ mode }, now.includes(mode) ? 1 : 0)
    metrics.storeUp.set(now.includes('store') ? 1 : 0)
  }
  const events: LiveOverridesOptions = {
    onChange(overrides, added, removed) {
      metrics.overrides.set(overrides)
      log.info({ overrides, added: logged(added), gone: logged(removed) }, 'limit overrides changed')
    },
    onRestored: (overrides) => log.warn({ overrides }, 'limit overrides lost by Redis; restored'),
    onUnreadable: (fields) => log.warn({ fields }, 'damaged limit overrides ignored'),
  }
  if (config === 'memory') {
    show('store')
    const store = createMemoryStore(clock)
    const overrides = createLiveOverrides(createMemoryFields(), prefixOf(config), events)
    return { store, overrides, outage: NO_OUTAGE, shareSummary: NOT_SHARED, ready: () => true }
  }

  const { redis, timeoutMs, onOutage: mode, instances, processes } = config
  metrics.fallbackDecisions.inc({ mode }, 0)
  /** Decisions without Redis that are not logged yet. */
  let unlogged = 0
  let withoutRedis = 0
  let lastCause: string | undefined
  let reportedAt = -Infinity
  let reporting: NodeJS.Timeout | undefined
  /**
   * Logs the decisions of the fallback while Redis is available: late answers, mostly. Those of an
   * outage are logged at its end.
   */
  function report(): void {
    if (store.mode() !== 'store') return
    log.warn({ mode, decisions: unlogged, cause: lastCause }, 'decisions made without Redis')
    reportedAt = performance.now()
    show('store')
    resume()
  }
  /** Resets the state after the decisions of the fallback were logged. */
  function resume(): void {
    onAvailable()
    unlogged = 0
    lastCause = undefined
    clearTimeout(reporting)
    reporting = undefined
  }
  // Counters in memory need no ioredis, whose modules take an eighth of the time of a start, and 5 MB.
  const { createRedisStore } = await import('../limit/redis/store.ts')
  const counters = createRedisStore({
    ...redis,
    prefix: prefixOf(config),
    timeoutMs,
    onLost: () => store.check(),
    onMisconfigured(error) {
      log.error({ mode }, error.message)
      store.fail(error)
    },
    onWarning: (warning) => log.warn(warning),
    onEmptied(countedUntil, emptySince) {
      const range = { countedUntil: new Date(countedUntil), emptySince: new Date(emptySince) }
      log.warn(range, 'Redis data lost; earlier calls are no longer counted')
    },
  })
  const logDamaged = (key: string) =>
    log.error({ key: showKey(key), mode }, 'Redis key damaged; its calls are decided without Redis')
  const store: FallbackStore = withFallback(counters, {
    onOutage: mode,
    instances,
    processes,
    onDamaged: throttle(logDamaged, DAMAGED_LOG_MS),
    onFallback(decided, cause) {
      metrics.fallbackDecisions.inc({ mode: decided })
      metrics.lastFallbackAt.setToCurrentTime()
      unlogged++
      withoutRedis++
      lastCause = cause?.message ?? lastCause
      if (reporting !== undefined || store.mode() !== 'store') return
      show('store', mode)
      const [first, next] = FALLBACK_LOG_MS
      reporting = setTimeout(report, performance.now() - reportedAt < next ? next : first).unref()
    },
    onChange({ mode: now, server, degraded, cause }) {
      show(degraded ? mode : 'store')
      if (now === 'store') {
        log.info({ server, mode: now, decisions: unlogged }, MODE_CHANGED.store)
        resume()
      }
      // `onMisconfigured` has logged a StoreConfigError.
      else if (cause?.name !== 'StoreConfigError')
        log.warn({ server, mode: now, cause: cause?.message }, MODE_CHANGED[now])
    },
  })
  const help = 'Processes that count in this Redis, each worker for itself.'
  metrics.showGauge('max', 'sluice_store_gateways', help, () => [[{}, counters.gateways()]])
  const overrides = createLiveOverrides(counters.overrides, prefixOf(config), events)
  // Overrides that cannot be read now are read by a later poll.
  if (await counters.connect()) await overrides.load().catch(() => {})
  else await store.begin()
  show(store.mode())
  const outage = () => ({ outages: Number(store.mode() !== 'store'), withoutRedis })
  const ready = (): boolean => mode !== 'deny' || store.mode() === 'store'
  const { renew, shareSummary } = counters
  return { store, overrides, outage, shareSummary, ready, renew }
}
