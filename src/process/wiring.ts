import { certificatesOf, describeValidity } from '../config/certificates.ts'
import type { Config } from '../config/config.ts'
import { readAsked } from '../downstream/forward-auth.ts'
import { createPeers } from '../downstream/peers.ts'
import type { GatewayDeps } from '../gateway/exchange.ts'
import type { createFailures } from '../gateway/failures.ts'
import { createGateway } from '../gateway/gateway.ts'
import { createUsage, type Usage } from '../gateway/usage.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Status } from '../observe/status.ts'
import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import { openKeys } from './open-api-keys.ts'
import { createGuards } from './open-guards.ts'
import { createIssuers, type LoadedKeys } from './open-issuers.ts'
import { declareSeries } from './declared-series.ts'
import type { OpenedStore } from './open-store.ts'
import { everyRouteNeedsStore } from '../policy/without-store.ts'
import type { Resources } from './resources.ts'
import { openRoutes } from './routes.ts'

/** Maximum length of the name of a field in the log, in characters. */
const MAX_FIELD = 64

/** The parts that outlive a reload. */
interface Parts extends Pick<
  GatewayDeps,
  'limiter' | 'reserves' | 'trace' | 'observe' | 'onIgnoredForwardedFor' | 'onSeveralCertificates'
> {
  readonly log: Log
  readonly metrics: Metrics
  readonly opened: OpenedStore
  readonly failures: ReturnType<typeof createFailures>
  /** True from the beginning of the drain. */
  isClosing(): boolean
}

/** The parts of one configuration, which a reload replaces. */
export interface Wired extends Pick<GatewayDeps, 'peers'> {
  readonly config: Config
  readonly serve: ReturnType<typeof createGateway>
  /** Serves the questions of a proxy; undefined without `forwardAuth`. */
  readonly serveAsked: ReturnType<typeof createGateway> | undefined
  readonly usage: Usage
  /** Returns why the gateway should get no requests; undefined if it should. */
  notReadyReason(): string | undefined
  /** Returns the state of what the configuration names. */
  status(): Pick<Status, 'issuers' | 'upstreams' | 'certificates'>
}

/** Creates what builds the parts of one configuration after another; unchanged resources are kept. */
export function createWiring(resources: Resources, parts: Parts) {
  const { log, metrics, opened, failures, isClosing, ...kept } = parts
  const { store, overrides } = opened
  const { loadIssuerKeys, openIssuers } = createIssuers(resources, log, metrics)
  const openGuards = createGuards(resources, log)
  const pool = resources.createPool<Upstream, Forward>()

  function openUpstream(settings: Upstream): Forward {
    const upstream = settings.name
    const eventsOf = (address: string) => ({
      onDown: ({ message: cause }: Error) => log.warn({ upstream, address, cause }, 'upstream address down'),
      onUp: () => log.info({ upstream, address }, 'upstream address up'),
    })
    return pool.get(settings, () => createForward(settings, eventsOf))
  }

  function onDroppedField(upstream: string, field: string): void {
    metrics.droppedFields.inc({ upstream })
    log.debug({ upstream, field: field.slice(0, MAX_FIELD) }, 'request field dropped')
  }

  /** Builds the parts of a configuration, and connects them. */
  function wire(config: Config, loadedKeys?: LoadedKeys): Wired {
    const peers = createPeers(config.listen.trustedProxies)
    const forwards = new Map(config.upstreams.map((one) => [one.name, openUpstream(one)]))
    declareSeries(config, metrics)
    const issuers = openIssuers(config, loadedKeys)
    const needsStore = everyRouteNeedsStore(config.routes, config.store)
    function notReadyReason(): string | undefined {
      const issuer = issuers.withoutKeys()
      if (issuer !== undefined) return `the keys of the issuer ${issuer} are not read yet`
      return opened.notReadyReason(needsStore)
    }
    const usage = createUsage({ ...config, overrides: overrides.limits, store })
    const deps: GatewayDeps = {
      ...openRoutes(config, forwards, overrides.limits, log, onDroppedField),
      ...kept,
      isReady: () => !isClosing() && notReadyReason() === undefined,
      peers,
      publicUrl: config.listen.publicUrl,
      certificateField: config.listen.clientCertificate.toLowerCase(),
      failures: config.failures && failures(config.failures),
      authenticate: issuers.authenticate,
      keys: openKeys(config, issuers.authenticate),
      guards: openGuards(config),
      usage,
    }
    const proxy = config.forwardAuth?.from
    const serveAsked = proxy && createGateway({ ...deps, readAsked: (request) => readAsked(proxy, request) })
    const validities = certificatesOf(config)
    return {
      config,
      serve: createGateway(deps),
      serveAsked,
      peers,
      notReadyReason,
      usage,
      status: () => ({
        issuers: issuers.status(),
        upstreams: config.upstreams.flatMap(({ name: upstream, maxConnections: maxSockets }) => {
          const forward = forwards.get(upstream)!
          const load = { maxSockets, ...forward.load() }
          return forward.addresses().map((address) => ({ upstream, ...address, ...load }))
        }),
        certificates: validities.map((validity) => ({
          certificate: validity.path.join('.'),
          expiresAt: validity.validToMs,
          ...describeValidity(validity, Date.now()),
        })),
      }),
    }
  }

  return { wire, loadIssuerKeys }
}
