import { certificatesOf, describeValidity } from '../config/certificates.ts'
import type { Config } from '../config/compile.ts'
import { readAsked } from '../downstream/forward-auth.ts'
import { createPeers } from '../downstream/peers.ts'
import type { GatewayDeps } from '../gateway/exchange.ts'
import type { createFailures } from '../gateway/failures.ts'
import { createGateway } from '../gateway/gateway.ts'
import { createUsage } from '../gateway/usage.ts'
import { prefixOf } from '../limit/key.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import { type AuthenticationPools, type LoadedKeys, openGuards, openIssuers } from './open-authentication.ts'
import type { OpenedStore } from './open-store.ts'
import type { Pool } from './resources.ts'
import { openRoutes } from './routes.ts'

/** The parts that outlive a reload. */
interface Parts extends Pick<GatewayDeps, 'limiter' | 'trace' | 'observe' | 'onIgnoredForwardedFor'> {
  readonly log: Log
  readonly metrics: Metrics
  readonly opened: OpenedStore
  readonly failures: ReturnType<typeof createFailures>
  readonly pools: AuthenticationPools & { readonly forwards: Pool<Upstream, Forward> }
}

/** The parts that a reload replaces. */
export type Wired = ReturnType<typeof wire>

/** Builds the parts of a configuration, and connects them; resources whose settings stay the same are kept. */
export function wire(config: Config, parts: Parts, loadedKeys?: LoadedKeys) {
  const { log, metrics, opened, failures, pools, ...kept } = parts
  const { store, overrides } = opened
  const peers = createPeers(config.listen.trustedProxies)
  const forwards = new Map(config.upstreams.map((one) => [one.name, openUpstream(one, pools, log)]))
  const issuers = openIssuers(pools, config, log, metrics, loadedKeys)
  const options = { ...config, prefix: prefixOf(config.store), overrides: overrides.limits }
  const usage = createUsage({ ...options, store })
  const deps: GatewayDeps = {
    ...openRoutes(config, forwards, overrides.limits, log),
    ...kept,
    peers,
    failures: config.failures && failures(config.failures),
    authenticate: issuers.authenticate,
    guards: openGuards(pools, config, log),
    usage,
  }
  const { forwardAuth } = config
  const serveAsked =
    forwardAuth && createGateway({ ...deps, readAsked: (request) => readAsked(forwardAuth.from, request) })
  const validities = certificatesOf(config)
  return {
    config,
    serve: createGateway(deps),
    serveAsked,
    peers,
    issuers,
    usage,
    /** Returns the state of what the configuration names. */
    status: () => ({
      issuers: issuers.status(),
      upstreams: config.upstreams.flatMap((upstream) =>
        upstreamStatus(upstream, forwards.get(upstream.name)!),
      ),
      certificates: validities.map((validity) => ({
        certificate: validity.path.join('.'),
        expiresAt: validity.validToMs,
        ...describeValidity(validity, Date.now()),
      })),
    }),
  }
}

function openUpstream(settings: Upstream, { forwards }: Parts['pools'], log: Log): Forward {
  const upstream = settings.name
  return forwards.get(settings, () =>
    createForward(settings, (address) => ({
      onDown: ({ message: cause }) => log.warn({ upstream, address, cause }, 'upstream address down'),
      onUp: () => log.info({ upstream, address }, 'upstream address up'),
    })),
  )
}

function upstreamStatus({ name: upstream, maxConnections: maxSockets }: Upstream, forward: Forward) {
  const { sockets, waiting: queue } = forward.load()
  const { count: waiting, oldestMs } = forward.waits()
  const load = { sockets, maxSockets, queue, waiting, oldestWaitSeconds: oldestMs / 1000 }
  return forward.addresses().map(({ address, up }) => ({ upstream, address, up, ...load }))
}
