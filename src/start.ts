import { setTimeout as sleep } from 'node:timers/promises'
import { createAdmin } from './admin/server.ts'
import type { Config, Upstream } from './config/schema.ts'
import { openCounters } from './counters.ts'
import { createFailures } from './failures.ts'
import { createForward, type Forward } from './forward.ts'
import { createGateway, type Serve } from './gateway.ts'
import type { Parts, ServedRoute } from './parts.ts'
import { createGuards } from './guards.ts'
import { createIssuers } from './issuers.ts'
import { type Decision, decisionHeaders } from './limit/decision.ts'
import { draftHeaders } from './limit/draft-headers.ts'
import { createLimiter } from './limit/limiter.ts'
import { type ClientLimits, compileLimits } from './limit/limit.ts'
import { createUsage } from './limit/usage.ts'
import { createListener, drain, listen } from './listener.ts'
import { createAccessLog } from './observe/access.ts'
import { createLog } from './observe/log.ts'
import { createMetrics } from './observe/metrics.ts'
import { createPeers, plainAddress } from './peer.ts'
import { createReload, type Occasion, type Source } from './reload.ts'
import { reused } from './reused.ts'
import { createRouter, type Route } from './route.ts'

/** A gateway that serves. */
export interface Running {
  /** Where callers are served, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** Where operators look. */
  readonly adminAddress: string
  /**
   * Reads the configuration again, for every request from then on; requests under way end with the old one, and counters
   * stay. A bad one changes nothing. Never rejects.
   */
  reload(occasion: Occasion): Promise<void>
  /** Readiness fails, requests under way end within `drainTimeout`, then everything is closed. */
  close(options?: CloseOptions): Promise<void>
}

export interface CloseOptions {
  /** Are new requests still taken for a part of `drainTimeout`, so that a load balancer can see the failing readiness? */
  readonly lameDuck?: boolean
}

/** The part of `drainTimeout` in which new requests are still taken. */
const LAME_DUCK_PART = 4

/** Builds every part from a configuration, connects them and listens. Rejects with words for the operator. */
export async function start(config: Config, source?: Source): Promise<Running> {
  const output = await createLog(
    config.log.level,
    config.log.format ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  )
  const { log } = output
  const metrics = createMetrics()
  const observe = createAccessLog(log, metrics)
  let unready = false
  let draining = false

  const { store, prefix, ready } = await openCounters(config.store, log, metrics).catch(
    async (error: Error) => {
      await output.close()
      throw error
    },
  )
  const limiter = createLimiter({
    store,
    onOutcome: (limit, outcome) => metrics.decisions.inc(limit, outcome),
  })
  const forwards = reused(
    (upstream: Upstream) => createForward({ ...upstream, origin: new URL(upstream.origin) }),
    (forward) => forward.close(),
  )
  const issuers = createIssuers(store, log)
  const guards = createGuards(log)
  const failures = createFailures()

  const usageIn = ({ limits, clientLimits }: Config) => createUsage({ store, prefix, limits, clientLimits })
  let usage = usageIn(config)

  function gatewayOf(next: Config): Serve {
    const { hosts, trustedProxies } = next.listen
    const forwardTo = new Map(next.upstreams.map((upstream) => [upstream.name, forwards.get(upstream)]))
    const current = usageIn(next)
    usage = current
    const parts: Parts = {
      match: createRouter(
        next.routes.map((route) => serveRoute(route, prefix, next.clientLimits, forwardTo)),
      ),
      serves: (host) => hosts.includes(host),
      peers: createPeers(trustedProxies),
      failures: next.failures && failures(next.failures),
      authenticate: issuers.authenticate(next.tokens, hosts),
      guard: next.par && guards.guard(next.par, next.clients),
      limiter,
      rateLimitHeaders: next.headers.draft === 'draft-10' ? allHeaders : decisionHeaders,
      limitsOf: ({ client }) => current.ofCaller(client!),
      observe,
    }
    for (const { where, path, message } of next.warnings) log.warn({ where, path }, message)
    forwards.endUnused()
    issuers.endUnused()
    guards.endUnused()
    return createGateway(parts)
  }
  let { drainTimeoutMs } = config
  let serve = gatewayOf(config)
  const reload =
    source &&
    createReload({
      config,
      source,
      apply(next) {
        serve = gatewayOf(next)
        drainTimeoutMs = next.drainTimeoutMs
        limiter.forget()
      },
      log,
      metrics,
    })

  const server = createListener(
    (request, response, expectsContinue) => {
      if (draining) response.shouldKeepAlive = false
      return serve(request, response, expectsContinue)
    },
    config.listen,
    {
      unreadable({ peer, status, reason }) {
        metrics.requests.inc('unmatched', 'any', String(status), 'gateway')
        log.info({ ip: plainAddress(peer), source: 'gateway', status, error: reason }, 'unreadable')
      },
      insecure: (reason) => log.info({ source: 'gateway', error: reason }, 'TLS handshake failed'),
      dropped: () => metrics.droppedSockets.inc(),
    },
    config.listen.tls,
  )
  const admin = createAdmin({
    ready: () => !unready && ready(),
    metrics: metrics.text,
    metricsType: metrics.contentType,
    token: config.admin.token,
    onLoopback: config.admin.onLoopback,
    usage: (client) => usage.ofClient(client),
    async reset(client) {
      const freed = await usage.free(client)
      limiter.forget()
      log.info({ client, freed }, 'an operator freed a client')
      return freed
    },
    failed: (error) => log.warn({ cause: (error as Error).message }, 'the counters could not be read'),
  })

  const release = async (): Promise<void> => {
    issuers.end()
    guards.end()
    forwards.end()
    await store.close()
    await output.close()
  }

  try {
    const adminAddress = await listen(admin, config.admin.host, config.admin.port, 'admin')
    const address = await listen(server, config.listen.host, config.listen.port, 'listen')
    log.info({ address, adminAddress }, 'sluice serves')
    let closing: Promise<void> | undefined
    const close = async (lameDuckMs: number): Promise<void> => {
      unready = true
      log.info('sluice drains')
      await sleep(lameDuckMs)
      draining = true
      const cut = await drain(server, drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
      if (cut > 0) log.warn({ sockets: cut }, 'requests were cut at the end of drainTimeout')
      await drain(admin, 0)
      log.info('sluice stopped')
      await release()
    }
    return {
      address,
      adminAddress,
      reload: async (occasion) => await reload?.(occasion),
      close: ({ lameDuck = false } = {}) =>
        (closing ??= close(lameDuck ? drainTimeoutMs / LAME_DUCK_PART : 0)),
    }
  } catch (error) {
    admin.close()
    await release()
    throw error
  }
}

function serveRoute(
  route: Route,
  prefix: string,
  clientLimits: ClientLimits,
  forwards: ReadonlyMap<string, Forward>,
): ServedRoute {
  const apply = compileLimits(route.limits, prefix, clientLimits)
  return {
    ...route,
    forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
    dialect: route.upstream === 'identity' || route.authenticate === 'par' ? 'oauth' : 'problem',
    needsUser: route.limits.some(({ per }) => per.includes('user')),
    quotas: (caller, params) => apply(caller, params, Date.now()),
  }
}

const allHeaders = (decision: Decision): string[] => [...decisionHeaders(decision), ...draftHeaders(decision)]
