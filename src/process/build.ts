import { setTimeout as sleep } from 'node:timers/promises'
import { plainAddress } from '../downstream/address.ts'
import type { Config } from '../config/schema.ts'
import { openCounters } from './open-store.ts'
import { createFailures } from '../limit/failure-limit.ts'
import type { Forward } from '../upstream/upstream.ts'
import { errorFormatOf, hostErrorFormats } from '../downstream/reply.ts'
import { drain } from '../downstream/drain.ts'
import { createGateway } from '../gateway/gateway.ts'
import type { Serve } from '../downstream/pipelining.ts'
import { createGuards } from './open-par.ts'
import { createIssuers } from './open-issuers.ts'
import { type Decision, decisionHeaders } from '../limit/decision.ts'
import { hashTag } from '../limit/redis/hash-slot.ts'
import { encodePart } from '../limit/key.ts'
import { draftHeaders } from '../limit/draft-headers.ts'
import { createLimiter } from '../limit/limiter.ts'
import { compileLimits, proofQuota, type Quota } from '../limit/limit.ts'
import { createUsage, type Usage } from '../limit/usage.ts'
import { createListener, listen, renewCertificate } from '../downstream/server.ts'
import { atMostEvery } from '../observe/at-most-every.ts'
import { createAccessLog } from '../observe/access.ts'
import type { LogOutput } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { compileParameters } from '../limit/parameters.ts'
import type { GatewayDeps, GatewayRoute } from '../gateway/deps.ts'
import { createPeers, type Peers } from '../downstream/trusted-proxies.ts'
import { createRouter, type Route, servedHosts } from '../downstream/router.ts'
import type { Service } from './workers/service.ts'
import type { SocketBound } from '../downstream/connection-limits.ts'
import { createUpstreams } from './open-upstreams.ts'

/** A service of this process alone. */
export interface OwnService extends Service {
  unready(): string | undefined
  apply(config: Config): Promise<void>
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
  const issuers = createIssuers(log)
  metrics.watchKeys(issuers.ages)
  const guards = createGuards(log)
  const failures = createFailures()

  const usageIn = ({ limits, clientLimits }: Config) =>
    createUsage({ store, counters, prefix, limits, clientLimits })

  function gatewayOf(next: Config): { answer: Serve; peers: Peers; usage: Usage } {
    const { hosts, trustedProxies } = next.listen
    const peers = createPeers(trustedProxies)
    const forwardTo = upstreams.forwards(next.upstreams)
    const usage = usageIn(next)
    const deps: GatewayDeps = {
      match: createRouter(next.routes.map((route) => serveRoute(route, prefix, next, forwardTo))),
      ...servedHosts(next.routes, hosts),
      errorFormatOf: hostErrorFormats(next.routes),
      peers,
      failures: next.failures && failures(next.failures),
      authenticate: issuers.authenticate(next.tokens, hosts),
      guard: guards.guard(next.par, next.clients),
      limiter,
      rateLimitHeaders: next.headers.draft === 'draft-10' ? allHeaders : decisionHeaders,
      limitsOf: ({ client }) => usage.ofCaller(client!),
      observe,
    }
    upstreams.endUnused()
    issuers.endUnused()
    return { answer: createGateway(deps), peers, usage }
  }
  let current = gatewayOf(config)
  const forget = (): void => {
    limiter.forget()
    current.usage.forget()
  }

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
    unready() {
      const issuer = issuers.awaited()
      if (issuer !== undefined) return `the keys of the issuer ${issuer} are not read yet`
      return ready() ? undefined : 'Redis does not answer, and store.onOutage is deny'
    },
    async apply(next) {
      await issuers.load(next.tokens)
      if (draining) return
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
    usage: (client, signal) => current.usage.ofClient(client, signal),
    reset: (client, signal) => current.usage.free(client, signal).finally(forget),
    forget,
    async close({ lameDuckMs, drainTimeoutMs }) {
      await sleep(lameDuckMs)
      draining = true
      const cut = await drain(server, drainTimeoutMs - lameDuckMs, lameDuckMs / 2)
      await release()
      return cut
    },
  }
}

function serveRoute(
  route: Route,
  prefix: string,
  { clientLimits, parameters }: Pick<Config, 'clientLimits' | 'parameters'>,
  forwards: ReadonlyMap<string, Forward>,
): GatewayRoute {
  const apply = compileLimits(route.limits, prefix, clientLimits)
  return {
    ...route,
    forward: route.upstream === undefined ? undefined : forwards.get(route.upstream)!,
    errorFormat: errorFormatOf(route),
    refuseParams: compileParameters(route, parameters),
    needsUser: route.limits.some(({ per }) => per.includes('user')),
    quotas: (caller, params) => apply(caller, params, Date.now()),
    proofQuota({ id, windowMs }, caller, quotas) {
      // Beside the limits, so that a cluster decides it with them; but a replay may come from another address.
      const byClient = quotas.length === 0 || route.limits[0]!.per[0] === 'ip'
      const first = byClient ? encodePart(caller.client!) : hashTag(quotas[0]!.key)
      return proofQuota(prefix, first, id, windowMs)
    },
  }
}

const allHeaders = (decision: Decision, quotas: readonly Quota[]): string[] => [
  ...decisionHeaders(decision),
  ...draftHeaders(decision, quotas),
]
