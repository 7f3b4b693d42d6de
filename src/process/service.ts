import { setTimeout as sleep } from 'node:timers/promises'
import { activityOf } from '../admin/overview/activity.ts'
import { createOperations } from '../admin/requests/operations.ts'
import type { OperatorApi } from '../admin/requests/operator-api.ts'
import type { Config } from '../config/config.ts'
import { openSockets } from '../downstream/listener/drain.ts'
import { createFailures } from '../gateway/failures.ts'
import { loginOf } from '../limit/redis/options.ts'
import { showGauges } from '../observe/gauges.ts'
import { type Log, type LogOutput, throttle } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Status } from '../observe/status.ts'
import type { ShownRequest } from '../observe/shown-request.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'
import { listOverrides } from '../policy/overrides.ts'
import { secretParts } from '../policy/parameter-kinds.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { keepFreedMemory } from '../runtime/malloc.ts'
import { assertPrivateParts } from '../runtime/node-http.ts'
import { createForgetting } from './forgetting.ts'
import { openLastingParts } from './lasting-parts.ts'
import { createListeners } from './listeners.ts'
import { createResources } from './resources.ts'
import { createWiring } from './wiring.ts'

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
  /** Drops cached answers of the store, and the decisions about a caller whose counters were reset. */
  forgetCaller(caller: CountedCaller): void
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
  let config = started
  let isClosing = false

  const parts = await openLastingParts(started, () => config, output, metrics, clock)
  const { shown, opened, limiter, reserves, activity, lastMinute } = parts
  const { store, overrides } = opened
  const resources = createResources()
  const { wire, loadIssuerKeys } = createWiring(resources, {
    log,
    metrics,
    opened,
    limiter,
    reserves,
    failures: createFailures(metrics),
    trace: parts.tracing?.begin,
    observe: parts.observe,
    ...createPeerWarnings(log, shown),
    isClosing: () => isClosing,
  })

  /** The parts of the configuration in force. */
  let current = resources.replace(() => wire(started))

  const { forgetCaches, forgetCallers, forgetAllCallers } = createForgetting(
    limiter,
    () => current.usage,
    activity,
  )
  opened.watch(forgetAllCallers)
  const listeners = createListeners(() => current, shown, log, metrics)
  const status = (): Status => ({
    workers: 1,
    gateways: opened.gateways(),
    sockets: openSockets(listeners.server),
    calls: activity.calls(),
    store: opened.status(),
    overridesKnown: opened.overridesKnown(),
    shadowOver: shadowOverOf(metrics),
    ...current.status(),
  })
  showGauges(metrics, status)
  const operations = createOperations({
    config: () => config,
    overrides,
    store,
    reserves,
    activity,
    log,
    callerText: shown.callerText,
    onReset: (caller) => forgetCallers([caller]),
  })

  async function apply(next: Config): Promise<void> {
    const loadedKeys = await loadIssuerKeys(next)
    if (listeners.draining()) return
    // What can throw comes before the swap: a rejected configuration must not be in force.
    const login = next.store === 'memory' ? undefined : loginOf(next.store.redis)
    current = resources.replace(() => {
      const wired = wire(next, loadedKeys)
      listeners.renew(next)
      return wired
    })
    config = next
    overrides.setSecrets(secretParts(next.parameters))
    if (login !== undefined) opened.renew?.(login)
    forgetCaches()
  }

  async function release(): Promise<void> {
    lastMinute.close()
    resources.close()
    await Promise.all([opened.closeOverrides(), store.close()])
  }

  async function close(lameDuck: boolean): Promise<number> {
    isClosing = true
    const { drainTimeoutMs } = config
    const lameDuckMs = lameDuck ? drainTimeoutMs * LAME_DUCK : 0
    const endAt = performance.now() + drainTimeoutMs
    await sleep(lameDuckMs)
    const cut = await listeners.drain(drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
    await Promise.all([release(), parts.tracing?.close(endAt - performance.now())])
    parts.accessLog.close()
    return cut
  }

  const addresses = await listeners.open().catch(async (error: Error) => {
    await release()
    throw error
  })
  overrides.watch(forgetCallers)

  return {
    ...addresses,
    ...operations,
    apply,
    close,
    forgetCaller: (caller) => forgetCallers([caller]),
    notReadyReason: () => current.notReadyReason(),
    metrics: metrics.text,
    status,
    activity: () => activityOf(activity),
    lastMinute: lastMinute.counts,
    shareSummary: opened.shareSummary,
    events: output.events,
    overrides: async () => listOverrides(overrides.values(), config.limits, Date.now()),
  }
}

/** Creates the warnings about peers whose fields are ignored, each of one peer at most once in an interval. */
function createPeerWarnings(log: Log, { addressOf }: ShownRequest) {
  const warnOfForwardedFor = (peer: string) =>
    log.warn({ peer: addressOf(peer) }, 'X-Forwarded-For ignored: its sender is not in listen.trustedProxies')
  const warnOfCertificates = (peer: string) =>
    log.warn({ peer }, 'client certificate ignored: its sender reports several')
  return {
    onIgnoredForwardedFor: throttle(warnOfForwardedFor, WARN_OF_PEER_MS, String, MAX_PEERS),
    onSeveralCertificates: throttle(warnOfCertificates, WARN_OF_PEER_MS, String, MAX_PEERS),
  }
}

/** Returns the calls that shadow limits would have refused, by limit. */
function shadowOverOf({ decisions }: Metrics): Status['shadowOver'] {
  return decisions
    .series()
    .filter(({ labels }) => labels.outcome === 'shadow_over')
    .map(({ labels: { limit }, count: calls }) => ({ limit, calls }))
}
