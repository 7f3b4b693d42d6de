import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from './config/schema.ts'
import { openCounters } from './counters.ts'
import { createFailures } from './failures.ts'
import type { Forward } from './forward.ts'
import { dialectOf, hostDialects } from './dialect.ts'
import { drain } from './drain.ts'
import { createGateway, type Serve } from './gateway.ts'
import { createGuards } from './guards.ts'
import { createIssuers } from './issuers.ts'
import { type Decision, decisionHeaders } from './limit/decision.ts'
import { draftHeaders } from './limit/draft-headers.ts'
import { createLimiter } from './limit/limiter.ts'
import { type ClientLimits, compileLimits, type Quota } from './limit/limit.ts'
import { createUsage, type Usage } from './limit/usage.ts'
import { createListener, listen, renewCertificate } from './listener.ts'
import { createAccessLog } from './observe/access.ts'
import type { LogOutput } from './observe/log.ts'
import type { Metrics } from './observe/metrics.ts'
import type { Parts, ServedRoute } from './parts.ts'
import { createPeers, type Peers, plainAddress } from './peer.ts'
import { createRouter, type Route } from './route.ts'
import type { Service } from './service.ts'
import type { SocketBound } from './socket-bounds.ts'
import { createUpstreams } from './upstreams.ts'

/** A service of this process alone. */
export interface OwnService extends Service {
  ready(): boolean
  apply(config: Config): void
  /** Forgets the refusals that are remembered without the store. */
  forget(): void
}

/** How often it is told that sockets are dropped, which the metrics count. */
const DROPPED_MS = 60_000

/** Builds every part of the gateway, connects them, and opens the callers' port last. Rejects with words for the operator. */
export async function serve(config: Config, output: LogOutput, metrics: Metrics): Promise<OwnService> {
  const { log } = output
  const observe = createAccessLog(output, metrics)
  let draining = false

  const { store, counters, prefix, ready } = await openCounters(config.store, log, metrics)
  const limiter = createLimiter({
    store,
    onOutcome: (limit, outcome) => metrics.decisions.inc(limit, outcome),
  })
  const upstreams = createUpstreams(log, metrics)
  const issuers = createIssuers(store, log)
  const guards = createGuards(log)
  const failures = createFailures()

  const usageIn = ({ limits, clientLimits }: Config) =>
    createUsage({ store, counters, prefix, limits, clientLimits })

  function gatewayOf(next: Config): { answer: Serve; peers: Peers; usage: Usage } {
    const { hosts, trustedProxies } = next.listen
    const peers = createPeers(trustedProxies)
    const forwardTo = upstreams.forwards(next.upstreams)
    const usage = usageIn(next)
    const parts: Parts = {
      match: createRouter(
        next.routes.map((route) => serveRoute(route, prefix, next.clientLimits, forwardTo)),
      ),
      serves: (host) => hosts.includes(host),
      dialectOf: hostDialects(next.routes),
      peers,
      failures: next.failures && failures(next.failures),
      authenticate: issuers.authenticate(next.tokens, hosts),
      guard: guards.guard(next.par, next.clients),
      limiter,
      rateLimitHeaders: next.headers.draft === 'draft-10' ? allHeaders : decisionHeaders,
      limitsOf: ({ client }, sinceMs) => usage.ofCaller(client!, sinceMs),
      observe,
    }
    upstreams.endUnused()
    issuers.endUnused()
    return { answer: createGateway(parts), peers, usage }
  }
  let current = gatewayOf(config)

  const tellDropped = atMostEvery(DROPPED_MS, (bound: SocketBound, address: string) =>
    log.warn({ bound: `listen.${bound}`, ip: plainAddress(address) }, 'sockets are closed at once'),
  )
  const server = createListener(
    (request, response, expectsContinue) => {
      if (draining) response.shouldKeepAlive = false
      return current.answer(request, response, expectsContinue)
    },
    config.listen,
    {
      unreadable({ peer, status, reason }) {
        metrics.requests.inc('unmatched', 'any', String(status), 'gateway')
        log.info({ ip: plainAddress(peer), source: 'gateway', status, error: reason }, 'unreadable')
      },
      insecure: (peer, reason) =>
        log.info({ ip: plainAddress(peer), source: 'gateway', error: reason }, 'TLS handshake failed'),
      exempt: (address) => current.peers.trusts(address),
      dropped(bound, address) {
        metrics.droppedSockets.inc({ bound })
        tellDropped(bound, address)
      },
    },
    config.listen.tls,
  )

  /** Renewed only when it changes, as that ends the TLS sessions that callers could resume. */
  let shown = config.listen.tls

  const release = async (): Promise<void> => {
    issuers.end()
    guards.end()
    upstreams.end()
    await store.close()
  }
  const { host, port } = config.listen
  const address = await listen(server, host, port, 'listen').catch(async (error: Error) => {
    await release()
    throw error
  })

  return {
    address,
    ready,
    apply(next) {
      const built = gatewayOf(next)
      const { tls } = next.listen
      if (tls !== undefined && JSON.stringify(tls) !== JSON.stringify(shown)) {
        renewCertificate(server, tls, config.listen)
        shown = tls
        log.info('new connections are shown another certificate')
      }
      current = built
      limiter.forget()
    },
    metrics: metrics.text,
    usage: (client) => current.usage.ofClient(client),
    async reset(client) {
      const freed = await current.usage.free(client)
      limiter.forget()
      return freed
    },
    forget: () => limiter.forget(),
    async close({ lameDuckMs, drainTimeoutMs }) {
      await sleep(lameDuckMs)
      draining = true
      const cut = await drain(server, drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
      await release()
      return cut
    },
  }
}

/** Passes calls on, and none that comes within so many milliseconds of the last. */
function atMostEvery<Values extends readonly unknown[]>(
  everyMs: number,
  tell: (...values: Values) => void,
): (...values: Values) => void {
  let nextAt = 0
  return (...values) => {
    const now = performance.now()
    if (now < nextAt) return
    nextAt = now + everyMs
    tell(...values)
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
    dialect: dialectOf(route),
    needsUser: route.limits.some(({ per }) => per.includes('user')),
    quotas: (caller, params) => apply(caller, params, Date.now()),
  }
}

const allHeaders = (decision: Decision, quotas: readonly Quota[]): string[] => [
  ...decisionHeaders(decision),
  ...draftHeaders(decision, quotas),
]
