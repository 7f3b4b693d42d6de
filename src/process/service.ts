import { setTimeout as sleep } from 'node:timers/promises'
import { certificatesOf } from '../config/certificates.ts'
import type { Config } from '../config/compile.ts'
import { createPeers } from '../downstream/peers.ts'
import { readAsked } from '../downstream/forward-auth.ts'
import type { Exchange, GatewayDeps } from '../gateway/exchange.ts'
import { createGateway } from '../gateway/gateway.ts'
import { createFailures } from '../gateway/failures.ts'
import { limitNameOf, prefixOf } from '../limit/key.ts'
import { showKey } from '../policy/caller-keys.ts'
import type { CountedCaller } from '../policy/counted.ts'
import { createLimiter } from '../limit/limiter.ts'
import { loginOf } from '../limit/redis/options.ts'
import { createUsage } from '../gateway/usage.ts'
import { createAccessLog } from '../observe/access-log.ts'
import { createActivity } from '../observe/activity.ts'
import { type LogOutput, throttleByKey } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import { createAuthenticationPools, type LoadedKeys, loadIssuerKeys } from './open-authentication.ts'
import { openGuards, openIssuers } from './open-authentication.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { assertPrivateParts } from '../runtime/node-http.ts'
import { createListeners } from './listeners.ts'
import { openStore } from './open-store.ts'
import { createOperations, type OperatorApi } from './operations.ts'
import { showGauges } from './overview.ts'
import { createResources } from './resources.ts'
import { openRoutes } from './routes.ts'

/** Serves callers: in this process, or in several that share its port. */
export interface Service extends OperatorApi {
  /** The callers' listener, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** The listener for a proxy; undefined without `forwardAuth`, and with several processes. */
  readonly forwardAuthAddress?: string | undefined
  /** Applies a configuration atomically; requests in flight end under the previous one. */
  apply(config: Config): Promise<void>
  /** Sets the log level of all workers; absent with one process. */
  setLogLevel?(level: LogLevel): Promise<void>
  /**
   * Lets requests in flight end within `drainTimeout`, then closes everything; returns how many
   * were cut. With `lameDuck`, new ones are accepted for a part of it.
   */
  close(lameDuck: boolean): Promise<number>
}

export type LocalService = Awaited<ReturnType<typeof buildService>>
export type LogLevel = Config['log']['level']

/** The fraction of `drainTimeout` in which new requests are still accepted. */
const LAME_DUCK = 1 / 4
/** Interval of a warning about one peer, in milliseconds, and the number of peers that are warned of meanwhile. */
const WARN_OF_PEER_MS = 600_000
const MAX_PEERS = 10
const KEPT_BYTES = 8 * 1024 ** 2

/**
 * Builds every part of the gateway, connects them, and opens the callers' port last. Rejects with a
 * message for the operator.
 */
export async function buildService(
  started: Config,
  output: LogOutput,
  metrics: Metrics,
  clock = SYSTEM_CLOCK, // of the limiter, and of counters in memory
) {
  // Makes glibc keep up to twice `KEPT_BYTES` of freed memory: freeing an mmapped block raises the
  // dynamic trim threshold to twice its size (mallopt(3), M_MMAP_THRESHOLD). Without it, malloc
  // returns the buffers of each large response to the kernel, and the page faults took up to half
  // of the processor time of 1 MB responses. Setting the thresholds would disable this.
  Buffer.allocUnsafeSlow(KEPT_BYTES)
  const { log } = output
  const tracing =
    started.tracing && (await import('../observe/tracing.ts')).createTracing(started.tracing, log)
  assertPrivateParts()
  /** Returns a key as it may be shown. */
  function showKeyNow(key: string): string {
    const limit = current.config.limits.find(({ name }) => name === limitNameOf(key))
    return limit === undefined ? key : showKey(prefixOf(started.store), limit, key)
  }
  const hooks = { showKey: showKeyNow, onAvailable: () => forget([]) }
  const opened = await openStore(started.store, log, metrics, hooks, clock)
  const { store, overrides, ready } = opened
  const limiter = createLimiter(store, metrics.decisions.inc, clock)
  const failures = createFailures({
    onCounted: () => metrics.failures.inc(),
    onRefused: () => metrics.failuresRefused.inc(),
  })
  const activity = createActivity()
  const accessLog = createAccessLog(output, metrics, activity, started.log.refusals)
  const write = accessLog.observe
  const observe = tracing ? (exchange: Exchange) => (write(exchange), tracing.end(exchange)) : write
  const warnOfPeer = (peer: string) =>
    log.warn({ peer }, 'X-Forwarded-For ignored: its sender is not in listen.trustedProxies')
  const onIgnoredForwardedFor = throttleByKey(warnOfPeer, WARN_OF_PEER_MS, MAX_PEERS)
  const resources = createResources()
  const pools = createAuthenticationPools(resources)
  const forwardPool = resources.createPool<Upstream, Forward>()

  function openUpstream(settings: Upstream) {
    const { name: upstream } = settings
    const open = () =>
      createForward(settings, ({ address, up, cause }) => {
        if (up) log.info({ upstream, address }, 'upstream address up')
        else log.warn({ upstream, address, cause }, 'upstream address down')
      })
    return [upstream, forwardPool.get(settings, open)] as const
  }
  /** Builds the parts that a reload replaces; resources whose settings stay the same are kept. */
  function wire(config: Config, loadedKeys?: LoadedKeys) {
    const peers = createPeers(config.listen.trustedProxies)
    const forwards = new Map(config.upstreams.map(openUpstream))
    const issuers = openIssuers(pools, config, log, metrics, loadedKeys)
    const prefix = prefixOf(config.store)
    const usage = createUsage({ ...config, store, prefix, overrides: overrides.limits })
    const deps: GatewayDeps = {
      ...openRoutes(config, forwards, overrides.limits, log),
      peers,
      onIgnoredForwardedFor,
      failures: config.failures && failures(config.failures),
      authenticate: issuers.authenticate,
      guards: openGuards(pools, config, log),
      limiter,
      usage,
      trace: tracing?.begin,
      observe,
    }
    const { forwardAuth } = started
    const serveAsked =
      forwardAuth && createGateway({ ...deps, readAsked: (request) => readAsked(forwardAuth.from, request) })
    const certificates = certificatesOf(config)
    return { config, serve: createGateway(deps), serveAsked, peers, forwards, issuers, usage, certificates }
  }
  let current = resources.replace(() => wire(started))

  const listeners = createListeners(() => current, log, metrics)
  showGauges(metrics, listeners.server, () => current)
  function release(): Promise<void> {
    resources.close()
    overrides.close()
    return store.close()
  }
  const addresses = await listeners.open().catch(async (error: Error) => {
    await release()
    throw error
  })

  /** Drops cached answers of the store, and the activity of callers whose limits have changed or were reset. */
  function forget(...callers: readonly CountedCaller[]): void {
    limiter.forget()
    current.usage.forget()
    for (const caller of callers) activity.forget(caller)
  }
  overrides.watch((callers) => forget(...callers))
  metrics.workers.set(1)

  return {
    ...addresses,
    notReadyReason() {
      const issuer = current.issuers.awaited()
      if (issuer !== undefined) return `the keys of the issuer ${issuer} are not read yet`
      return ready() ? undefined : 'Redis does not answer, and store.onOutage is deny'
    },
    async apply(next: Config) {
      const loadedKeys = await loadIssuerKeys(pools, next)
      if (listeners.draining()) return
      // What can throw comes before the swap: a rejected configuration must not be in force.
      const login = next.store === 'memory' ? undefined : loginOf(next.store.redis)
      current = resources.replace(() => {
        const wired = wire(next, loadedKeys)
        listeners.renew(next)
        return wired
      })
      if (login !== undefined) opened.renew?.(login)
      forget()
    },
    metrics: metrics.text,
    metricValues: metrics.ownValues,
    activity: activity.values,
    vitals: () => ({ ...activity.recent(), ...opened.outage() }),
    shareSummary: opened.shareSummary,
    events: output.events,
    ...createOperations({
      current: () => current,
      overrides,
      inspect: store.inspect,
      findShown: activity.find,
      forget,
      log,
    }),
    forget,
    async close(lameDuck: boolean) {
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
