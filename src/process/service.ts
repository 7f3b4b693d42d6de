import { setTimeout as sleep } from 'node:timers/promises'
import type { AdminParts } from '../admin/server.ts'
import { certificatesOf } from '../config/certificates.ts'
import type { Config } from '../config/schema.ts'
import { drain } from '../downstream/drain.ts'
import { createListener, listen, renewCertificate } from '../downstream/server.ts'
import { createPeers, normalizeAddress } from '../downstream/addresses.ts'
import type { Exchange, GatewayDeps } from '../gateway/exchange.ts'
import { createGateway } from '../gateway/gateway.ts'
import { createFailures } from '../limit/failure-limit.ts'
import { prefixOf } from '../limit/key.ts'
import { createLimiter } from '../limit/limiter.ts'
import { createUsage } from '../limit/usage.ts'
import { createAccessLog } from '../observe/access-log.ts'
import { createActivity } from '../observe/activity/activity.ts'
import type { ActivityValues } from '../observe/activity/values.ts'
import { atMostEvery, type LogOutput } from '../observe/log.ts'
import type { Metrics, MetricValues } from '../observe/metrics.ts'
import { keepFreedMemory } from './freed-memory.ts'
import { showGauges } from './gauges.ts'
import { type LoadedKeys, loadIssuerKeys, openGuards, openIssuers } from './open-authentication.ts'
import { compileRoutes, openUpstreams } from './open-routes.ts'
import { openStore } from './open-store.ts'
import { createOperations, type Operations } from './operations.ts'
import { createResources } from './resources.ts'

/** What operators ask of a service. */
export interface OperatorApi extends Operations, Pick<AdminParts, 'notReadyReason' | 'metrics'> {
  /** Returns what `metrics` shows, as plain values. */
  metricValues(): Promise<MetricValues>
  activity(): ActivityValues | Promise<ActivityValues>
}

/** What serves callers: this process, or several that share its port. */
export interface Service extends OperatorApi {
  /** Where callers are served, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** Puts a configuration into force, whole or not at all; requests in flight end with the one before. */
  apply(config: Config): Promise<void>
  /** Of several processes: sets the level of their logs. */
  setLogLevel?(level: LogLevel): Promise<void>
  /** Drains and closes everything; returns how many requests had to be cut. */
  close(times: DrainTimes): Promise<number>
}

export type LogLevel = Config['log']['level']
export interface DrainTimes {
  /** New requests are still taken so long, so that a load balancer can see the failing readiness. */
  readonly lameDuckMs: number
  /** Requests in flight may end so long, `lameDuckMs` included. */
  readonly drainTimeoutMs: number
}

/** A service of this process alone; `forget` drops the refusals that it caches, and what it shows of a client that was reset. */
export type LocalService = Service & { forget(client: string): void }

const DROPPED_LOG_MS = 60_000
/** Builds every part of the gateway, connects them, and opens the callers' port last. Rejects with a message for the operator. */
export async function buildService(
  config: Config,
  output: LogOutput,
  metrics: Metrics,
): Promise<LocalService> {
  keepFreedMemory()
  const { log } = output
  const tracing = config.tracing && (await import('../observe/tracing.ts')).createTracing(config.tracing, log)
  const { store, counters, overrides, ready } = await openStore(config.store, log, metrics)
  const prefix = prefixOf(config.store)
  const limiter = createLimiter(store, metrics.decisions.inc)
  const failures = createFailures({
    onCounted: () => metrics.failures.inc(),
    onRefused: () => metrics.failuresRefused.inc(),
  })
  const activity = createActivity()
  const accessLog = createAccessLog(output, metrics, activity, config.log.refusals)
  const record = accessLog.observe
  const observe =
    tracing === undefined ? record : (exchange: Exchange) => (record(exchange), tracing.end(exchange))
  const resources = createResources()
  let draining = false

  function wire(next: Config, loadedKeys?: LoadedKeys) {
    const peers = createPeers(next.listen.trustedProxies)
    const forwards = openUpstreams(resources, next.upstreams, log)
    const issuers = openIssuers(resources, next, log, metrics, loadedKeys)
    const usage = createUsage({ ...next, store, counters, prefix, overrides: overrides.limits })
    const deps: GatewayDeps = {
      ...compileRoutes(next, prefix, forwards, overrides.limits),
      peers,
      failures: next.failures && failures(next.failures),
      authenticate: issuers.authenticate,
      guards: openGuards(resources, next, log),
      limiter,
      limitsOf: ({ client }) => usage.ofCaller(client!),
      readAllowance: usage.read,
      trace: tracing?.begin,
      observe,
    }
    const certificates = certificatesOf(next)
    const { upstreams, listen } = next
    return {
      config: next,
      serve: createGateway(deps),
      peers,
      forwards,
      issuers,
      usage,
      tls: listen.tls,
      upstreams,
      certificates,
    }
  }
  let current = resources.replace(() => wire(config))

  const logDropped = atMostEvery(DROPPED_LOG_MS, (bound: string, ip: string) =>
    log.warn({ bound: `listen.${bound}`, ip }, 'sockets dropped at the connection limit'),
  )
  const server = createListener(
    (request, response, expectsContinue, done) => {
      if (draining) response.shouldKeepAlive = false
      current.serve(request, response, expectsContinue, done)
    },
    config.listen,
    {
      unreadable(peer, status, reason, requestId) {
        metrics.requests.inc('unmatched', 'any', String(status), 'gateway')
        log.info(
          { requestId, ip: normalizeAddress(peer), source: 'gateway', status, error: reason },
          'malformed request',
        )
      },
      insecure: (peer, reason) =>
        log.info({ ip: normalizeAddress(peer), source: 'gateway', error: reason }, 'TLS handshake failed'),
      exempt: (address) => current.peers.trusts(address),
      dropped(bound, address) {
        metrics.droppedSockets.inc({ bound })
        logDropped(bound, normalizeAddress(address))
      },
    },
    config.listen.tls,
  )
  metrics.maxSockets.set(config.listen.maxConnections)
  showGauges(metrics, server, () => current)
  const release = async (): Promise<void> => {
    resources.close()
    overrides.close()
    await store.close()
  }
  const { host, port } = config.listen
  const address = await listen(server, host, port, 'listen').catch(async (error: Error) => {
    await release()
    throw error
  })

  /** Drops cached answers of the store, and what the console shows of clients whose limits have changed or were reset. */
  function forget(...clients: readonly string[]): void {
    limiter.forget()
    current.usage.forget()
    for (const client of clients) activity.forget(client)
  }
  overrides.watch((clients) => forget(...clients))

  return {
    address,
    notReadyReason() {
      const issuer = current.issuers.awaited()
      if (issuer !== undefined) return `the keys of the issuer ${issuer} are not read yet`
      return ready() ? undefined : 'Redis does not answer, and store.onOutage is deny'
    },
    async apply(next) {
      const loadedKeys = await loadIssuerKeys(resources, next)
      if (draining) return
      current = resources.replace(() => {
        const wired = wire(next, loadedKeys)
        const { tls } = next.listen
        // It ends the TLS sessions that callers could resume.
        if (tls !== undefined && JSON.stringify(tls) !== JSON.stringify(current.tls)) {
          renewCertificate(server, tls, next.listen)
          log.info('TLS certificate renewed')
        }
        return wired
      })
      forget()
    },
    metrics: metrics.text,
    metricValues: metrics.ownValues,
    activity: activity.values,
    ...createOperations(() => current, overrides, counters, forget, log),
    forget,
    async close({ lameDuckMs, drainTimeoutMs }) {
      const endAt = performance.now() + drainTimeoutMs
      await sleep(lameDuckMs)
      draining = true
      const cut = await drain(server, drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
      await Promise.all([release(), tracing?.close(endAt - performance.now())])
      accessLog.close()
      return cut
    },
  }
}
