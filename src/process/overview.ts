import type { Server } from 'node:http'
import type { Validity } from '../config/certificates.ts'
import type { Config } from '../config/compile.ts'
import { openSockets } from '../downstream/listener/drain.ts'
import { instant } from '../runtime/instant.ts'
import { quotaOf } from '../policy/rule.ts'
import type { Limit } from '../policy/limit.ts'
import { MAX_CALLERS } from '../observe/callers.ts'
import { withMostUsed } from '../observe/activity.ts'
import { createLastMinute } from '../observe/last-minute.ts'
import type { Metrics, MetricValues } from '../observe/metrics.ts'
import { VERSION } from '../runtime/package.ts'
import type { Forward } from '../upstream/upstream.ts'
import { createGateways } from './gateways.ts'
import type { Issuers } from './open-authentication.ts'
import type { OperatorApi } from './operations.ts'
import type { Configuration } from './reload.ts'

export type Overview = Awaited<ReturnType<ReturnType<typeof createOverview>['read']>>

const MAX_EVENTS = 50
const MAX_OVERRIDES = 100

/** Creates the content of the console: the callers, the limits, and the state of the gateway from its metrics. */
export function createOverview(
  configuration: Pick<Configuration, 'config' | 'hash' | 'reloads'>,
  operatorApi: () => OperatorApi,
) {
  const gateways = createGateways(configuration, operatorApi)
  const lastMinute = createLastMinute(async () => await operatorApi().metricValues())

  return {
    close() {
      lastMinute.close()
      gateways.close()
    },
    /** Returns the current content; rejects until the gateway has started, and if the metrics cannot be collected. */
    async read() {
      const { notReadyReason, activity, metricValues, overrides, events } = operatorApi()
      const until = instant(Date.now() - (performance.now() % 1000))
      const [notReady, activityNow, values, listed, logged, sharing] = await Promise.all([
        notReadyReason(),
        activity(),
        metricValues(),
        // Rejects while no worker serves.
        overrides().catch(() => []),
        events(),
        gateways.read(),
      ])
      const { clients, limits, store } = configuration.config()
      const shown = new Set(activityNow.callers.map(({ client }) => client))
      const listedHere = clients.filter(({ caller }) => shown.has(caller))
      const names = new Map(listedHere.map(({ caller, name }) => [caller, name]))
      return {
        version: VERSION,
        at: new Date().toISOString(),
        gateway: gateways.self,
        gateways: sharing.gateways,
        gatewaysReadAt: sharing.readAt,
        notReady: notReady ?? null,
        activity: {
          ...activityNow,
          /** The end of the last second of the series. Those of workers differ by less than a second. */
          until,
          mostKnown: MAX_CALLERS,
          callers: activityNow.callers
            .map((caller) => withMostUsed(caller, names.get(caller.client ?? '')))
            .toSorted((a, b) => b.refusals - a.refusals || b.part - a.part),
        },
        limits: limits.map((limit) => limitOf(limit, Date.now())),
        overrides: { total: listed.length, first: listed.slice(0, MAX_OVERRIDES) },
        counts: store === 'memory' ? 'memory' : 'Redis',
        status: statusOf(values),
        lastMinute: lastMinute.since(values),
        events: logged.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, MAX_EVENTS),
        reloads: configuration.reloads,
      }
    },
  }
}

function limitOf(limit: Limit, nowMs: number) {
  const { name, per, shadow, windowMs, calendar, changes, isConcurrent } = limit
  const upcoming = changes.filter(({ fromAt }) => fromAt > nowMs)
  return {
    ...{ name, per, shadow, ...(calendar && { calendar }) },
    ...(!isConcurrent && { windowSeconds: windowMs / 1000 }),
    limit: quotaOf(limit, '', nowMs).limit,
    changes: upcoming.map(({ fromAt, limit }) => ({ from: instant(fromAt), limit })),
  }
}

type Labels = Readonly<Record<string, string>>

/** Returns the state that the metrics contain, except the callers; missing metrics give empty lists. */
function statusOf(metrics: MetricValues) {
  const byName = new Map(metrics.map(({ name, values }) => [name, values]))
  const series = (name: string) =>
    (byName.get(`sluice_${name}`) ?? []) as readonly { labels: Labels; value: number }[]
  /** Returns the value of the first series of this name, or of the first with this label. */
  const valueOf = (name: string, label = '', text?: string): number | null =>
    series(name).find(({ labels }) => labels[label] === text)?.value ?? null

  const lastFallbackAt = valueOf('store_fallback_last_timestamp_seconds')
  return {
    workers: valueOf('workers'),
    /** Processes that share the counters in Redis; null with counters in memory. */
    gateways: valueOf('store_gateways'),
    sockets: valueOf('downstream_sockets'),
    store: {
      up: valueOf('store_up') === 1,
      modes: series('store_mode').flatMap(({ labels: { mode = '' }, value }) => (value === 1 ? mode : [])),
      /** Decisions without Redis since the start, and the instant of the last. */
      withoutRedis: valueOf('store_fallback_decisions_total') ?? 0,
      lastWithoutRedis: lastFallbackAt ? instant(lastFallbackAt * 1000) : null,
    },
    upstreams: series('upstream_up').map(({ labels: { upstream = '', address = '' }, value }) => ({
      upstream,
      address,
      up: value === 1,
      sockets: valueOf('upstream_sockets', 'upstream', upstream),
      queue: valueOf('upstream_queue', 'upstream', upstream),
      waiting: valueOf('upstream_waiting', 'upstream', upstream),
      oldestWaitSeconds: valueOf('upstream_oldest_wait_seconds', 'upstream', upstream),
    })),
    issuers: series('issuer_keys_age_seconds').map(({ labels: { issuer = '' }, value }) => ({
      issuer,
      ageSeconds: value,
      failures: valueOf('issuer_keys_failures_total', 'issuer', issuer),
    })),
    introspection: series('introspection_up').map(({ labels: { issuer = '' }, value }) => ({
      issuer,
      up: value === 1,
    })),
    certificates: series('certificate_expiry_timestamp_seconds').map(({ labels, value }) => ({
      certificate: labels['certificate'] ?? '',
      expiresAt: value * 1000,
    })),
    /** Calls since the start that shadow limits would have refused. */
    shadowOver: series('limit_decisions_total')
      .filter(({ labels }) => labels['outcome'] === 'shadow_over')
      .map(({ labels: { limit = '' }, value: calls }) => ({ limit, calls })),
    configuration: {
      hash: series('config_hash_info')[0]?.labels['hash'] ?? '',
      loaded: valueOf('config_last_reload_successful') === 1,
    },
  }
}

/** The state that gauges show; a reload replaces it. */
interface Observed {
  readonly config: Config
  readonly issuers: Issuers
  readonly forwards: ReadonlyMap<string, Forward>
  readonly certificates: readonly Validity[]
}

type ReadForward = (forward: Forward) => number

/** Makes the gauges read their values from `server` and the current state whenever they are shown. */
export function showGauges({ showGauge }: Metrics, server: Server, current: () => Observed): void {
  /** Shows a value of each upstream, combined for several processes by `aggregator`. */
  function showForwards(aggregator: 'sum' | 'max', name: string, help: string, read: ReadForward) {
    showGauge(aggregator, `sluice_upstream_${name}{upstream}`, help, () =>
      [...current().forwards].map(([upstream, forward]) => [{ upstream }, read(forward)] as const),
    )
  }
  showGauge('min', 'sluice_upstream_up{upstream,address}', '0 while the address fails.', () =>
    [...current().forwards].flatMap(([upstream, { addresses }]) =>
      addresses().map(({ address, up }) => [{ upstream, address }, up ? 1 : 0] as const),
    ),
  )
  const age = "Seconds since the issuer's keys were last read, or since the first attempt."
  showGauge('max', 'sluice_issuer_keys_age_seconds{issuer}', age, () => current().issuers.keyAges())
  const down = '0 while it fails, else 1.'
  showGauge('min', 'sluice_introspection_up{issuer}', down, () => current().issuers.introspections())
  const expiry = 'Expiry of the first certificate in the file at this path of the configuration.'
  showGauge('min', 'sluice_certificate_expiry_timestamp_seconds{certificate}', expiry, () =>
    current().certificates.map(({ path, validToMs }) => [{ certificate: path.join('.') }, validToMs / 1000]),
  )
  showGauge('sum', 'sluice_downstream_sockets', 'Open sockets.', () => [[{}, openSockets(server)]])
  showForwards('sum', 'sockets', 'Open sockets to the upstream.', ({ load }) => load().sockets)
  const max = 'Maximum of sluice_upstream_sockets (maxConnections of the upstream).'
  showGauge('sum', 'sluice_upstream_max_sockets{upstream}', max, () =>
    current().config.upstreams.map(({ name, maxConnections }) => [{ upstream: name }, maxConnections]),
  )
  showForwards('sum', 'queue', 'Requests waiting for a socket.', ({ load }) => load().waiting)
  const waiting = 'Requests waiting for the head of a response.'
  showForwards('sum', 'waiting', waiting, ({ waits }) => waits().count)
  const oldest = 'Time that the oldest request has waited for its head; 0 if none waits.'
  showForwards('max', 'oldest_wait_seconds', oldest, ({ waits }) => waits().oldestMs / 1000)
}
