import { Gauge, Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { type CallerActivity, type LimitActivity, mergeActivity } from '../../src/observe/activity.ts'
import { mergeVitals } from '../../src/observe/summary.ts'
import { createOverview } from '../../src/process/overview.ts'
import type { OperatorApi } from '../../src/process/operations.ts'
import { completed, load } from '../config/load-text.ts'

const LIMITS = `limits:
  requests:
    per: [client]
    limit: 10
    window: 1m
    changes:
      - { announced: 2020-01-01T00:00:00Z, from: 2020-02-01T00:00:00Z, limit: 20 }
      - { announced: 2020-01-01T00:00:00Z, from: 2090-02-01T00:00:00Z, limit: 30 }`

const ROUTES = 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }]'
const configOf = async (limits: string) => (await load(completed(`${limits}\n${ROUTES}`))).config

const OVERRIDES = Array.from({ length: 101 }, (_, i) => ({
  ...{ caller: `client:${i}`, name: 'requests', limit: 5, until: null, set: '', by: null, note: null },
  applies: true,
}))

/** Returns the overview of a process that shows these metrics and callers. */
async function overviewOf(registry = new Registry(), callers: CallerActivity[] = []) {
  const operated: Partial<OperatorApi> = {
    notReadyReason: () => 'not yet',
    activity: () => ({ ...mergeActivity([]), callers }),
    metricValues: () => registry.getMetricsAsJSON(),
    overrides: async () => OVERRIDES,
    events: () => [],
    vitals: () => mergeVitals([]),
    shareSummary: async () => [],
  }
  let config = await configOf(LIMITS)
  const configuration = { config: () => config, hash: () => null, reloads: [] }
  const overview = createOverview(configuration, () => operated as OperatorApi)
  return Object.assign(overview, { configured: (next: typeof config) => void (config = next) })
}

it('shows the state that the metrics contain, and empty lists for missing metrics', async () => {
  const empty = await (await overviewOf()).read()
  expect(empty).toMatchObject({ notReady: 'not yet', reloads: [] })
  expect(empty.status).toMatchObject({
    upstreams: [],
    issuers: [],
    introspection: [],
    certificates: [],
    sockets: null,
  })

  const registry = new Registry()
  const show = (name: string, labels: Record<string, string>, value: number): void => {
    const known = registry.getSingleMetric(name) as Gauge | undefined
    const gauge =
      known ?? new Gauge({ name, help: '-', labelNames: Object.keys(labels), registers: [registry] })
    gauge.set(labels, value)
  }
  const expiresAt = Date.UTC(2030, 0, 1)
  show('sluice_certificate_expiry_timestamp_seconds', { certificate: 'gw.pem' }, expiresAt / 1000)
  show('sluice_issuer_keys_age_seconds', { issuer: 'i' }, 12)
  show('sluice_issuer_keys_failures_total', { issuer: 'i' }, 3)
  show('sluice_introspection_up', { issuer: 'i' }, 0)
  show('sluice_upstream_up', { upstream: 'data', address: 'http://a' }, 0)
  show('sluice_upstream_up', { upstream: 'identity', address: 'http://b' }, 1)
  show('sluice_upstream_sockets', { upstream: 'data' }, 5)
  show('sluice_upstream_queue', { upstream: 'data' }, 2)
  show('sluice_upstream_waiting', { upstream: 'data' }, 4)
  show('sluice_upstream_oldest_wait_seconds', { upstream: 'data' }, 1.5)
  show('sluice_downstream_sockets', {}, 7)
  show('sluice_store_up', {}, 0)
  show('sluice_store_mode', { mode: 'local' }, 1)
  show('sluice_store_mode', { mode: 'store' }, 0)
  show('sluice_store_fallback_decisions_total', { mode: 'local' }, 6)
  show('sluice_store_fallback_last_timestamp_seconds', {}, 1_750_000_000)
  show('sluice_limit_decisions_total', { limit: 'trial', outcome: 'shadow_over' }, 4)
  show('sluice_limit_decisions_total', { limit: 'requests', outcome: 'over' }, 9)
  expect((await (await overviewOf(registry)).read()).status).toMatchObject({
    sockets: 7,
    store: {
      ...{ up: false, modes: ['local'] },
      ...{ withoutRedis: 6, lastWithoutRedis: '2025-06-15T15:06:40.000Z' },
    },
    upstreams: [
      {
        ...{ upstream: 'data', address: 'http://a', up: false, sockets: 5, queue: 2 },
        ...{ waiting: 4, oldestWaitSeconds: 1.5 },
      },
      {
        ...{ upstream: 'identity', address: 'http://b', up: true, sockets: null, queue: null },
        ...{ waiting: null, oldestWaitSeconds: null },
      },
    ],
    issuers: [{ issuer: 'i', ageSeconds: 12, failures: 3 }],
    introspection: [{ issuer: 'i', up: false }],
    certificates: [{ certificate: 'gw.pem', expiresAt }],
    shadowOver: [{ limit: 'trial', calls: 4 }],
  })
})

it('shows the limits in force with their upcoming changes, and the first hundred overrides', async () => {
  const overview = await overviewOf()
  expect((await overview.read()).limits).toEqual([
    {
      ...{ name: 'requests', per: ['client'], limit: 20, windowSeconds: 60, shadow: false },
      changes: [{ from: '2090-02-01T00:00:00.000Z', limit: 30 }],
    },
  ])
  overview.configured(await configOf(LIMITS.replace('limit: 20', 'limit: 25')))
  const { overrides, limits } = await overview.read()
  expect(overrides).toEqual({ total: 101, first: OVERRIDES.slice(0, 100) })
  expect(limits).toMatchObject([{ limit: 25 }])
})

it('sorts callers by refusals, then by the used part of a live limit with one counter for the caller; the limit that refuses comes first', async () => {
  const limit = (more: Partial<LimitActivity>): LimitActivity => ({
    ...{ name: 'requests', limit: 10, remaining: 10, windowSeconds: 60, reset: '' },
    ...{ shadow: false, isAlone: true, ageMs: 0, refused: 0, wouldRefuse: 0, ...more },
  })
  const client = (client: string, ...limits: LimitActivity[]): CallerActivity => ({
    ...{
      caller: `client:${client}`,
      client,
      route: '/*',
      calls: [1],
      refused: [0],
      limits,
      refusedNow: null,
    },
  })
  const sync = limit({ name: 'sync', limit: 1, remaining: 0, isAlone: false })
  const trial = limit({ name: 'trial', limit: 1, remaining: 0, shadow: true })
  const clients = [
    client('idle'),
    client('half', trial, sync, limit({ remaining: 5 })),
    client('most', limit({ remaining: 9 }), limit({ name: 'other', remaining: 2 })),
    client('only', sync),
  ]
  const refusedNow = { limit: 'sync', isOwn: true, until: null, forMs: 9 }
  clients.push({ ...client('refused', limit({ remaining: 1 }), sync), refused: [1], refusedNow })
  const { activity } = await (await overviewOf(undefined, clients)).read()
  expect(activity.callers.map(({ client, most }) => [client, most?.name])).toEqual([
    ['refused', 'sync'],
    ['only', 'sync'],
    ['most', 'other'],
    ['half', 'requests'],
    ['idle', undefined],
  ])
})
