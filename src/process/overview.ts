import type { Server } from 'node:http'
import { hostname } from 'node:os'
import type { Validity } from '../config/certificates.ts'
import type { Config } from '../config/schema.ts'
import { openSockets } from '../downstream/drain.ts'
import { instant } from '../limit/instant.ts'
import { inForce } from '../limit/limit.ts'
import { MAX_CALLERS } from '../observe/activity/sketch.ts'
import { withMostUsed } from '../observe/activity/values.ts'
import { createLastMinute } from '../observe/last-minute.ts'
import type { Metrics, MetricValues } from '../observe/metrics.ts'
import { VERSION } from '../observe/version.ts'
import type { Forward } from '../upstream/upstream.ts'
import type { Issuers } from './open-authentication.ts'
import type { OperatorApi } from './operations.ts'
import type { ReloadRecord } from './reload.ts'

export type Overview = Awaited<ReturnType<ReturnType<typeof createOverview>['read']>>

const MAX_RELOADS = 20
const MAX_EVENTS = 50
const MAX_OVERRIDES = 100
/** Maximum problems that are kept of one reload: each of 100,000 clients may cause one. */
const MAX_PROBLEMS = 20

/** Creates the content of the console: the callers, the limits, and the state of the gateway from its metrics. */
export function createOverview(config: () => Config, operatorApi: () => OperatorApi) {
  const reloads: ReloadRecord[] = []
  const startedAt = new Date().toISOString()
  const lastMinute = createLastMinute(() => operatorApi().metricValues())

  return {
    close: lastMinute.close,
    reloaded({ problems, ...record }: ReloadRecord): void {
      reloads.unshift({ ...record, problems: problems.slice(0, MAX_PROBLEMS) })
      reloads.length = Math.min(reloads.length, MAX_RELOADS)
    },
    /** Returns the current content; rejects if the metrics cannot be collected. */
    async read() {
      const { notReadyReason, activity, metricValues, overrides, events } = operatorApi()
      const [notReady, activityNow, values, listed, logged] = await Promise.all([
        notReadyReason(),
        activity(),
        metricValues(),
        // Rejects until the gateway has started.
        overrides().catch(() => []),
        events(),
      ])
      const shown = new Set(activityNow.clients.map(({ client }) => client))
      const listedHere = config().clients.filter(({ caller }) => shown.has(caller))
      const names = new Map(listedHere.map(({ caller, name }) => [caller, name]))
      return {
        version: VERSION,
        at: new Date().toISOString(),
        gateway: { host: hostname(), pid: process.pid, startedAt },
        notReady: notReady ?? null,
        activity: {
          ...activityNow,
          mostKnown: MAX_CALLERS,
          clients: activityNow.clients
            .map((caller) =>
              withMostUsed(caller, caller.kind === 'client' ? names.get(caller.client) : undefined),
            )
            .toSorted((a, b) => b.refusals - a.refusals || b.part - a.part),
        },
        limits: limitsOf(config()),
        overrides: { total: listed.length, first: listed.slice(0, MAX_OVERRIDES) },
        counts: config().store === 'memory' ? 'memory' : 'Redis',
        status: statusOf(values),
        lastMinute: lastMinute.since(values),
        events: logged.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, MAX_EVENTS),
        reloads,
      }
    },
  }
}

function limitsOf({ limits }: Config) {
  const now = Date.now()
  return limits.map((limit) => {
    const { name, per, shadow, windowMs, calendar, changes } = limit
    const upcoming = changes.filter(({ fromAt }) => fromAt > now)
    return {
      ...{ name, per, shadow, windowSeconds: windowMs / 1000, ...(calendar && { calendar }) },
      limit: inForce(limit, now).limit,
      changes: upcoming.map(({ fromAt, limit }) => ({ from: instant(fromAt), limit })),
    }
  })
}

/** Returns the state that the metrics contain, except the callers; missing metrics give empty lists. */
function statusOf(metrics: MetricValues) {
  const byName = new Map(metrics.map((metric) => [metric.name, metric.values]))
  const rows = (name: string) =>
    (byName.get(`sluice_${name}`) ?? []).map(({ labels, value }) => ({
      value,
      label: (name: string): string => String(labels[name] ?? ''),
    }))
  const single = (name: string): number | null => rows(name)[0]?.value ?? null
  const withLabel = (name: string, label: string, wanted: string): number | null =>
    rows(name).find((row) => row.label(label) === wanted)?.value ?? null

  const lastFallbackAt = single('store_fallback_last_timestamp_seconds') ?? 0
  return {
    workers: single('workers'),
    /** Processes that share the counters in Redis; null with counters in memory. */
    gateways: single('store_gateways'),
    sockets: single('downstream_sockets'),
    store: {
      up: single('store_up') === 1,
      modes: rows('store_mode').flatMap(({ label, value }) => (value === 1 ? label('mode') : [])),
      /** Decisions without Redis since the start, and the instant of the last. */
      withoutRedis: single('store_fallback_decisions_total') ?? 0,
      lastWithoutRedis: lastFallbackAt === 0 ? null : instant(lastFallbackAt * 1000),
    },
    upstreams: rows('upstream_up').map(({ label, value }) => ({
      upstream: label('upstream'),
      address: label('address'),
      up: value === 1,
      sockets: withLabel('upstream_sockets', 'upstream', label('upstream')),
      queue: withLabel('upstream_queue', 'upstream', label('upstream')),
    })),
    issuers: rows('issuer_keys_age_seconds').map(({ label, value }) => ({
      issuer: label('issuer'),
      ageSeconds: value,
      failures: withLabel('issuer_keys_failures_total', 'issuer', label('issuer')),
    })),
    introspection: rows('introspection_up').map(({ label, value }) => ({
      issuer: label('issuer'),
      up: value === 1,
    })),
    certificates: rows('certificate_expiry_timestamp_seconds').map(({ label, value }) => ({
      certificate: label('certificate'),
      expiresAt: value * 1000,
    })),
    /** Calls since the start that shadow limits would have refused. */
    shadowOver: rows('limit_decisions_total').flatMap(({ label, value }) =>
      label('outcome') === 'shadow_over' ? [{ limit: label('limit'), calls: value }] : [],
    ),
    configuration: {
      hash: rows('config_hash_info')[0]?.label('hash') ?? '',
      loaded: single('config_last_reload_successful') === 1,
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

/** Makes the gauges read their values from `server` and the current state whenever they are shown. */
export function showGauges({ showGauge }: Metrics, server: Server, current: () => Observed): void {
  const perUpstream = (read: (forward: Forward) => number) =>
    [...current().forwards].map(([upstream, forward]) => [{ upstream }, read(forward)] as const)

  showGauge('min', 'sluice_upstream_up{upstream,address}', '0 while the address fails.', () =>
    [...current().forwards].flatMap(([upstream, { addresses }]) =>
      addresses().map(({ address, up }) => [{ upstream, address }, up ? 1 : 0] as const),
    ),
  )
  const age = "Seconds since the issuer's keys were last read, or since the first attempt."
  showGauge('max', 'sluice_issuer_keys_age_seconds{issuer}', age, () => current().issuers.keyAges())
  showGauge('min', 'sluice_introspection_up{issuer}', '0 while it fails, else 1.', () =>
    current().issuers.introspections(),
  )
  const expiry = 'Expiry of the first certificate in the file at this path of the configuration.'
  showGauge('min', 'sluice_certificate_expiry_timestamp_seconds{certificate}', expiry, () =>
    current().certificates.map(({ path, validToMs }) => [{ certificate: path.join('.') }, validToMs / 1000]),
  )
  showGauge('sum', 'sluice_downstream_sockets', "Callers' open sockets.", () => [[{}, openSockets(server)]])
  showGauge('sum', 'sluice_upstream_sockets{upstream}', 'Open sockets to the upstream.', () =>
    perUpstream(({ load }) => load().sockets),
  )
  const max = 'Maximum of sluice_upstream_sockets (maxConnections of the upstream).'
  showGauge('sum', 'sluice_upstream_max_sockets{upstream}', max, () =>
    current().config.upstreams.map(({ name, maxConnections }) => [{ upstream: name }, maxConnections]),
  )
  showGauge('sum', 'sluice_upstream_queue{upstream}', 'Requests waiting for a socket.', () =>
    perUpstream(({ load }) => load().waiting),
  )
}
