import type { Config } from '../config/schema.ts'
import { inForce } from '../limit/in-force.ts'
import { instant } from '../limit/instant.ts'
import { MAX_CALLERS } from '../observe/activity/sketch.ts'
import type { CallerActivity, LimitActivity } from '../observe/activity/values.ts'
import type { MetricValues } from '../observe/metrics.ts'
import { VERSION } from '../observe/version.ts'
import type { ReloadRecord } from './reload.ts'
import type { OperatorApi } from './service.ts'

export type Overview = Awaited<ReturnType<ReturnType<typeof createOverview>['read']>>

const MAX_RELOADS = 20
const MAX_OVERRIDES = 100
/** Problems of one reload that are kept: each of 100,000 clients may give one. */
const MAX_PROBLEMS = 20

/** Creates what the console shows: what callers do, which limits there are, and what the metrics say of the rest. */
export function createOverview(started: Config, operated: () => OperatorApi) {
  let config = started
  const reloads: ReloadRecord[] = []

  return {
    /** A configuration came into force. */
    configured(next: Config): void {
      config = next
    },
    reloaded({ problems, ...end }: ReloadRecord): void {
      reloads.unshift({ ...end, problems: problems.slice(0, MAX_PROBLEMS) })
      reloads.length = Math.min(reloads.length, MAX_RELOADS)
    },
    /** Returns all of it as of now; rejects if the metrics cannot be collected. */
    async read() {
      const { notReadyReason, activity, metricValues, overrides } = operated()
      const [notReady, now, values, set] = await Promise.all([
        notReadyReason(),
        activity(),
        metricValues(),
        // There are none before it serves.
        overrides().catch(() => []),
      ])
      return {
        version: VERSION,
        at: new Date().toISOString(),
        notReady: notReady ?? null,
        activity: {
          ...now,
          mostKnown: MAX_CALLERS,
          clients: now.clients.map(withMost).toSorted((a, b) => b.part - a.part),
        },
        limits: limitsOf(config),
        overrides: { total: set.length, first: set.slice(0, MAX_OVERRIDES) },
        counts: config.store === 'memory' ? 'memory' : 'Redis',
        status: statusOf(values),
        reloads,
      }
    },
  }
}

/** Returns, of the limits that a client has one counter of, the one that it has used most; of the others where there is none. */
function mostUsed({ limits }: CallerActivity): LimitActivity | null {
  const live = limits.filter(({ shadow }) => !shadow)
  const single = live.filter(({ perClient }) => perClient)
  return (single.length > 0 ? single : live).toSorted((a, b) => partUsed(b) - partUsed(a))[0] ?? null
}

/** Returns a client with the limit that it has used most, and the part of it, from 0 to 1. */
function withMost(client: CallerActivity) {
  const most = mostUsed(client)
  return { ...client, most, part: most === null ? 0 : partUsed(most) }
}

/** A limit that allows no calls is used up. */
const partUsed = ({ limit, remaining }: LimitActivity): number =>
  limit === 0 ? 1 : (limit - remaining) / limit

function limitsOf({ limits }: Config) {
  const now = Date.now()
  return limits.map((limit) => ({
    name: limit.name,
    per: limit.per,
    limit: inForce(limit, undefined, undefined, now).limit,
    windowSeconds: limit.windowMs / 1000,
    shadow: limit.shadow,
    changes: limit.changes
      .filter(({ fromAt }) => fromAt > now)
      .map(({ fromAt, limit }) => ({ from: instant(fromAt), limit })),
  }))
}

type Labels = Readonly<Record<string, string | number>>

/** Returns what the metrics say of everything but the callers; metrics that there are not give empty lists. */
function statusOf(metrics: MetricValues) {
  const byName = new Map(metrics.map((metric) => [metric.name, metric.values]))
  const rows = (name: string) =>
    (byName.get(`sluice_${name}`) ?? []).map(({ labels, value }) => ({ labels: labels as Labels, value }))
  const one = (name: string): number | null => rows(name)[0]?.value ?? null
  /** The value of another metric with the same label; null if there is none. */
  const beside = (name: string, label: string, wanted: Labels): number | null =>
    rows(name).find(({ labels }) => labels[label] === wanted[label])?.value ?? null

  return {
    workers: one('workers'),
    sockets: one('downstream_sockets'),
    store: {
      up: one('store_up') === 1,
      modes: rows('store_mode').flatMap(({ labels, value }) => (value === 1 ? [String(labels['mode'])] : [])),
    },
    upstreams: rows('upstream_up').map(({ labels, value }) => ({
      upstream: String(labels['upstream']),
      address: String(labels['address']),
      up: value === 1,
      sockets: beside('upstream_sockets', 'upstream', labels),
      queue: beside('upstream_queue', 'upstream', labels),
    })),
    issuers: rows('issuer_keys_age_seconds').map(({ labels, value }) => ({
      issuer: String(labels['issuer']),
      ageSeconds: value,
      failures: beside('issuer_keys_failures_total', 'issuer', labels),
    })),
    introspection: rows('introspection_up').map(({ labels, value }) => ({
      issuer: String(labels['issuer']),
      up: value === 1,
    })),
    certificates: rows('certificate_expiry_timestamp_seconds').map(({ labels, value }) => ({
      certificate: String(labels['certificate']),
      expiresAt: value * 1000,
    })),
    /** Since the start, of the limits that would have refused. */
    shadowOver: rows('limit_decisions_total').flatMap(({ labels, value }) =>
      labels['outcome'] === 'shadow_over' ? [{ limit: String(labels['limit']), calls: value }] : [],
    ),
    configuration: {
      hash: String(rows('config_hash_info')[0]?.labels['hash'] ?? ''),
      loaded: one('config_last_reload_successful') === 1,
    },
  }
}
