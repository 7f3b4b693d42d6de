import type { OverviewSource } from '../admin/overview/source.ts'
import type { Config } from '../config/config.ts'
import { type FallbackStore, withFallback } from '../limit/fallback/store.ts'
import { createMemoryStore } from '../limit/memory/store.ts'
import type { loginOf } from '../limit/redis/options.ts'
import { createMemoryFields } from '../limit/versioned-fields.ts'
import type { InspectedStore } from '../limit/store.ts'
import { type Log, throttle } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { createOutageLog } from '../observe/outage-log.ts'
import type { StoreStatus } from '../observe/status.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'
import type { Override } from '../policy/overrides.ts'
import { secretParts } from '../policy/parameter-kinds.ts'
import { type Clock, SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { createOverridesFile, type OverridesFile } from './overrides-file.ts'
import { createLiveOverrides, type LiveOverrides, type LiveOverridesOptions } from './overrides-live.ts'

const DAMAGED_LOG_MS = 10_000
const MAX_LOGGED = 20
const NOT_SHARED = () => Promise.reject(new Error('Counters in memory are not shared.'))
const UNDECIDED = 'Redis does not answer or is full, and every route has a limit under onOutage: deny'
const UNREAD = 'the overrides are not read from Redis yet, and store.overrides is required'
const UP: StoreStatus = { modes: ['store'], withoutRedis: 0, lastWithoutRedis: null, outage: null }

type RedisConfig = Exclude<Config['store'], 'memory'>

/** Formats for the log. */
interface Texts {
  /** Returns a key as it may be logged. */
  showKey(key: string): string
  /** Formats a caller for the log. */
  callerText(caller: CountedCaller): string
}

const listed = (overrides: readonly Override[], callerText: Texts['callerText']): readonly string[] =>
  overrides.slice(0, MAX_LOGGED).map(({ caller, name, limit, untilAt, by, note }) => {
    const end = untilAt === undefined ? 'permanent' : `until ${instant(untilAt)}`
    const who = by ? `, by ${by}` : ''
    return `${callerText(caller)} ${name}=${limit}, ${end}${who}${note ? `: ${note}` : ''}`
  })

/** The counters and the overrides, which outlive reloads. */
export interface OpenedStore extends Pick<OverviewSource, 'shareSummary'> {
  readonly store: InspectedStore
  readonly overrides: LiveOverrides
  /** True once the overrides were read, from Redis or the file. */
  overridesKnown(): boolean
  closeOverrides(): void | Promise<void>
  /** Returns the last known number of gateways that share the counters; null for counters in memory. */
  gateways(): number | null
  status(): StoreStatus
  /** Sets the listener that is called when Redis is available again: what the fallback refused may pass. */
  watch(onAvailable: () => void): void
  /**
   * Returns why no calls can be decided; undefined if some can. `needsStore` is true if no route can
   * do without the store.
   */
  notReadyReason(needsStore: boolean): string | undefined
  /** Makes new connections to Redis use another login; absent with counters in memory. */
  renew?(login: ReturnType<typeof loginOf>): void
}

/** Opens the store and the overrides. Rejects if Redis contradicts the configuration. */
export async function openStore(
  { store: config, prefix, parameters }: Pick<Config, 'store' | 'prefix' | 'parameters'>,
  log: Log,
  metrics: Metrics,
  { showKey, callerText }: Texts,
  clock: Clock = SYSTEM_CLOCK,
): Promise<OpenedStore> {
  const events: LiveOverridesOptions = {
    secrets: secretParts(parameters),
    onChange(overrides, added, removed) {
      metrics.overrides.set(overrides)
      const [inForce, gone] = [listed(added, callerText), listed(removed, callerText)]
      log.info({ overrides, added: inForce, gone }, 'limit overrides changed')
    },
    onRestored: (overrides) => log.warn({ overrides }, 'limit overrides lost by Redis; restored'),
    onUnreadable: (fields) => log.warn({ fields }, 'damaged limit overrides ignored'),
  }
  if (config === 'memory') return openMemory(prefix, events, clock)
  return await openRedis(config, prefix, events, log, metrics, showKey)
}

function openMemory(prefix: string, events: LiveOverridesOptions, clock: Clock): OpenedStore {
  const overrides = createLiveOverrides(createMemoryFields(), prefix, events)
  const always = { gateways: () => null, status: () => UP, notReadyReason: () => undefined, watch() {} }
  const known = { overridesKnown: () => true, closeOverrides: overrides.close }
  return { store: createMemoryStore(clock), overrides, ...always, ...known, shareSummary: NOT_SHARED }
}

async function openRedis(
  config: RedisConfig,
  prefix: string,
  events: LiveOverridesOptions,
  log: Log,
  metrics: Metrics,
  showKey: Texts['showKey'],
): Promise<OpenedStore> {
  const { redis, timeoutMs, onOutage: mode, instances, processes, part } = config
  /** Called when Redis is available again. Nothing remembers a refusal before the listener is set. */
  let onAvailable: (() => void) | undefined
  const outages = createOutageLog(mode, () => onAvailable?.(), log, metrics)
  // Counters in memory need no ioredis, whose modules take an eighth of the time of a start, and 5 MB.
  const { createRedisStore } = await import('../limit/redis/store.ts')
  const counters = createRedisStore({
    ...redis,
    prefix,
    timeoutMs,
    onLost: () => store.check(),
    onMisconfigured(error) {
      log.error({ mode }, error.message)
      store.fail(error)
    },
    onWarning: (warning) => log.warn(warning),
    onClockRight: (server) => log.info({ server }, 'Redis clock right again'),
    onLoss: (server) => store.restoreLeases(server),
    ...lossEvents(log),
  })
  const logDamaged = (key: string) =>
    log.error({ key: showKey(key), mode }, 'Redis key damaged; its calls are decided without Redis')
  const store: FallbackStore = withFallback(counters, {
    onOutage: mode,
    instances,
    processes,
    partPercent: part,
    onDamaged: throttle(logDamaged, DAMAGED_LOG_MS),
    onUnmerged: () => log.warn('calls lost that Redis has not counted'),
    onFallback: outages.decided,
    onChange: outages.changed,
  })
  const { overridesFile, overrides: needed } = config
  const file = overridesFile === undefined ? undefined : createOverridesFile(overridesFile, prefix, log)
  const overrides = createLiveOverrides(counters.overrides, prefix, { ...events, onRead: file?.save })
  if (await counters.connect()) void counters.warnOfRefused()
  else await store.begin()
  // The server of the overrides may be up while another one is down.
  await overrides.load().catch(() => {})
  const isFromFile = !overrides.wasRead() && (await assumeOverrides(overrides, file, log))
  const { gateways, shareSummary, renew } = counters

  function notReadyReason(needsStore: boolean): string | undefined {
    if (needsStore && store.mode() !== 'store') return UNDECIDED
    return needed === 'required' && !overrides.wasRead() ? UNREAD : undefined
  }
  return {
    store,
    overrides,
    overridesKnown: () => isFromFile || overrides.wasRead(),
    closeOverrides(): Promise<void> | undefined {
      overrides.close()
      return file?.close()
    },
    gateways,
    watch(listener) {
      onAvailable = listener
    },
    status: outages.status,
    notReadyReason,
    shareSummary,
    renew,
  }
}

/** Logs which calls are no longer counted after Redis has lost data. */
const lossEvents = (log: Log) => ({
  onEmptied(countedUntil: number, emptySince: number): void {
    const range = { countedUntil: new Date(countedUntil), emptySince: new Date(emptySince) }
    log.warn(range, 'Redis data lost; earlier calls are no longer counted')
  },
  onOutdated(countedUntil: number, lostUntil: number): void {
    const range = {
      countedUntil: countedUntil === 0 ? null : new Date(countedUntil),
      lostUntil: new Date(lostUntil),
    }
    log.warn(range, 'Redis data lost; later calls are no longer counted')
  },
})

/** Puts the overrides of the file into force until Redis answers; returns false if there are none to use. */
async function assumeOverrides(live: LiveOverrides, file: OverridesFile | undefined, log: Log) {
  const kept = await file?.read()
  if (kept === undefined) {
    log.warn('limit overrides unknown; starting without them')
    return false
  }
  await live.assume(kept.fields)
  const { written } = kept
  log.info(
    { overrides: live.limits.size, written },
    'limit overrides read from the file; Redis does not answer',
  )
  return true
}
