import { setTimeout as sleep } from 'node:timers/promises'
import type { OperatorApi } from '../admin/requests/operator-api.ts'
import { activityOf } from '../admin/overview/activity.ts'
import { createActivity } from '../admin/overview/callers.ts'
import { createLastMinute } from '../admin/overview/last-minute.ts'
import type { Config } from '../config/config.ts'
import { openSockets } from '../downstream/listener/drain.ts'
import type { Exchange } from '../gateway/exchange.ts'
import { createFailures } from '../gateway/failures.ts'
import { limitNameOf } from '../limit/key.ts'
import { createLimiter } from '../limit/limiter.ts'
import { loginOf } from '../limit/redis/options.ts'
import { createAccessLog } from '../observe/access-log.ts'
import { showGauges } from '../observe/gauges.ts'
import { type LogOutput, throttle } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Status } from '../observe/status.ts'
import { createShownRequest } from '../observe/personal-data.ts'
import { showKey } from '../policy/caller-keys.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'
import { listOverrides } from '../policy/overrides.ts'
import { secretParts } from '../policy/parameter-kinds.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { keepFreedMemory } from '../runtime/malloc.ts'
import { assertPrivateParts } from '../runtime/node-http.ts'
import { createListeners } from './listeners.ts'
import { openStore } from './open-store.ts'
import { createOperations } from '../admin/requests/operations.ts'
import { createResources } from './resources.ts'
import { createWiring } from './wiring.ts'

/** Maximum callers whose decisions are dropped one by one: each is compared with all rows of the table. */
const MAX_FORGOTTEN = 100

/** Serves callers: in this process, or in several that share its port. */
export interface Service extends OperatorApi {
  /** The callers' listener, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** The listener for a proxy; undefined without `forwardAuth`, and with several processes. */
  readonly forwardAuthAddress?: string | undefined
  /** Applies a configuration atomically; requests in flight end under the previous one. */
  apply(config: Config): Promise<void>
  /** Sets the log level of all workers; absent with one process. */
  setLogLevel?(level: Config['log']['level']): Promise<void>
  /**
   * Lets requests in flight end within `drainTimeout`, then closes everything; returns how many
   * were cut. With `lameDuck`, new ones are accepted for a part of it.
   */
  close(lameDuck: boolean): Promise<number>
}

/** The service of one process. */
export interface LocalService extends Service {
  /** Drops cached answers of the store, and the activity of a caller whose limits were reset. */
  forget(caller: CountedCaller): void
}

/** The fraction of `drainTimeout` in which new requests are still accepted. */
const LAME_DUCK = 1 / 4
/** Interval of a warning about one peer, in milliseconds, and the number of peers that are warned of meanwhile. */
const WARN_OF_PEER_MS = 600_000
const MAX_PEERS = 10

/**
 * Builds every part of the gateway, connects them, and opens the callers' port last. Rejects with a
 * message for the operator.
 */
export async function buildService(
  started: Config,
  output: LogOutput,
  metrics: Metrics,
  clock = SYSTEM_CLOCK, // of the limiter, and of counters in memory
): Promise<LocalService> {
  keepFreedMemory()
  assertPrivateParts()
  const { log } = output
  const shown = createShownRequest(started.log)
  const tracing =
    started.tracing && (await import('../observe/tracing.ts')).createTracing(started.tracing, log, shown)
  /** Returns a key as it may be logged. */
  function showKeyNow(key: string): string {
    const limit = current.config.limits.find(({ name }) => name === limitNameOf(key))
    return limit === undefined ? key : showKey(started.prefix, limit, key, started.log.ip !== 'full')
  }
  const { callerText } = shown
  const hooks = { showKey: showKeyNow, callerText, onAvailable: () => forget([]) }
  const opened = await openStore(started, log, metrics, hooks, clock)
  const { store, overrides } = opened
  const limiter = createLimiter(store, metrics.decisions.inc, clock)
  const failures = createFailures(metrics)
  const activity = createActivity()
  const lastMinute = createLastMinute(metrics)
  const accessLog = createAccessLog(output, metrics, activity.count, started.log.refusals, shown)
  function observe(exchange: Exchange): void {
    // First: log and metrics name the trace.
    tracing?.end(exchange)
    accessLog.observe(exchange)
  }
  const warnOfPeer = (peer: string) =>
    log.warn(
      { peer: shown.addressOf(peer) },
      'X-Forwarded-For ignored: its sender is not in listen.trustedProxies',
    )
  const onIgnoredForwardedFor = throttle(warnOfPeer, WARN_OF_PEER_MS, String, MAX_PEERS)
  const warnOfCertificates = (peer: string) =>
    log.warn({ peer }, 'client certificate ignored: its sender reports several')
  const onSeveralCertificates = throttle(warnOfCertificates, WARN_OF_PEER_MS, String, MAX_PEERS)
  const resources = createResources()
  const trace = tracing?.begin
  let closing = false
  function notReadyReason(): string | undefined {
    const issuer = current.issuers.awaited()
    if (issuer !== undefined) return `the keys of the issuer ${issuer} are not read yet`
    return opened.notReadyReason()
  }
  const isReady = () => !closing && notReadyReason() === undefined
  const warnings = { onIgnoredForwardedFor, onSeveralCertificates }
  const kept = { log, metrics, opened, failures, limiter, trace, observe, ...warnings, isReady }
  const { wire, loadIssuerKeys } = createWiring(resources, kept)
  let current = resources.replace(() => wire(started))

  const listeners = createListeners(() => current, shown, log, metrics)
  const status = (): Status => ({
    workers: 1,
    gateways: opened.gateways(),
    sockets: openSockets(listeners.server),
    calls: activity.calls(),
    store: opened.status(),
    overridesKnown: opened.overridesKnown(),
    shadowOver: metrics.decisions
      .series()
      .filter(({ labels }) => labels.outcome === 'shadow_over')
      .map(({ labels: { limit }, count: calls }) => ({ limit, calls })),
    ...current.status(),
  })
  showGauges(metrics, status)
  async function release(): Promise<void> {
    lastMinute.close()
    resources.close()
    await Promise.all([opened.closeOverrides(), store.close()])
  }
  const addresses = await listeners.open().catch(async (error: Error) => {
    await release()
    throw error
  })

  function forget(...callers: readonly CountedCaller[]): void {
    limiter.forget()
    current.usage.forget()
    for (const caller of callers) activity.forget(caller)
  }
  // For many callers, dropping all decisions takes less than finding theirs.
  overrides.watch((callers) => (callers.length > MAX_FORGOTTEN ? forget([]) : forget(...callers)))

  return {
    ...addresses,
    notReadyReason,
    async apply(next) {
      const loadedKeys = await loadIssuerKeys(next)
      if (listeners.draining()) return
      // What can throw comes before the swap: a rejected configuration must not be in force.
      const login = next.store === 'memory' ? undefined : loginOf(next.store.redis)
      current = resources.replace(() => {
        const wired = wire(next, loadedKeys)
        listeners.renew(next)
        return wired
      })
      overrides.setSecrets(secretParts(next.parameters))
      if (login !== undefined) opened.renew?.(login)
      forget()
    },
    metrics: metrics.text,
    status,
    activity: () => activityOf(activity),
    lastMinute: lastMinute.counts,
    shareSummary: opened.shareSummary,
    events: output.events,
    overrides: async () => listOverrides(overrides.values(), current.config.limits, Date.now()),
    ...createOperations({
      config: () => current.config,
      overrides,
      store,
      activity,
      forget,
      log,
      callerText,
    }),
    forget,
    async close(lameDuck) {
      closing = true
      const { drainTimeoutMs } = current.config
      const lameDuckMs = lameDuck ? drainTimeoutMs * LAME_DUCK : 0
      const endAt = performance.now() + drainTimeoutMs
      await sleep(lameDuckMs)
      const cut = await listeners.drain(drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
      await Promise.all([release(), tracing?.close(endAt - performance.now())])
      accessLog.close()
      return cut
    },
  }
}
