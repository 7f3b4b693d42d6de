import { expect, it } from 'vitest'
import {
  type CallerActivity,
  type LimitActivity,
  mergeActivity,
} from '../../../src/admin/overview/activity.ts'
import { mergeMinutes } from '../../../src/admin/overview/last-minute.ts'
import { createOverview } from '../../../src/admin/overview/overview.ts'
import type { OverviewSource } from '../../../src/admin/overview/source.ts'
import { mergeStatus } from '../../../src/observe/status.ts'
import { completed, load } from '../../config/load-text.ts'

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

/** Returns the overview of a process with these callers. */
async function overviewOf(callers: CallerActivity[] = []) {
  const source: OverviewSource = {
    notReadyReason: () => 'not yet',
    status: () => mergeStatus([]),
    activity: () => ({ ...mergeActivity([]), callers }),
    lastMinute: () => mergeMinutes([]),
    overrides: async () => OVERRIDES,
    events: () => [],
    shareSummary: async () => [],
  }
  let config = await configOf(LIMITS)
  const configuration = {
    config: () => config,
    hash: () => null,
    reloads: [],
    leftOut: () => [],
    keptAt: () => null,
  }
  const overview = createOverview(configuration, () => source)
  return Object.assign(overview, { configured: (next: typeof config) => void (config = next) })
}

it('shows why the gateway is not ready, and its status', async () => {
  const { notReady, reloads, status } = await (await overviewOf()).read()
  expect({ notReady, reloads }).toEqual({ notReady: 'not yet', reloads: [] })
  expect(status.upstreams).toEqual([])
})

it('shows the limits in force with their upcoming changes, and the first hundred overrides', async () => {
  const overview = await overviewOf()
  expect((await overview.read()).limits).toEqual([
    {
      ...{ name: 'requests', per: ['client'], limit: 20, windowSeconds: 60, shadow: false },
      changes: [{ announced: '2020-01-01T00:00:00.000Z', from: '2090-02-01T00:00:00.000Z', limit: 30 }],
    },
  ])
  overview.configured(await configOf(LIMITS.replace('limit: 20', 'limit: 25')))
  const { overrides, limits } = await overview.read()
  expect(overrides).toEqual({ total: 101, first: OVERRIDES.slice(0, 100) })
  expect(limits).toMatchObject([{ limit: 25 }])
})

it('sorts callers by refusals, then by the used part of a live limit with one counter for the caller; the limit that refuses comes first', async () => {
  const limit = (more: Partial<LimitActivity>): LimitActivity => ({
    ...{ name: 'requests', limit: 10, used: 0, remaining: 10, part: null, windowSeconds: 60, reset: '' },
    ...{ shadow: false, isAlone: true, ageMs: 0, refused: 0, wouldRefuse: 0, ...more },
  })
  const client = (client: string, ...limits: LimitActivity[]): CallerActivity => ({
    ...{
      caller: `client:${client}`,
      client,
      plan: null,
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
  const { activity } = await (await overviewOf(clients)).read()
  expect(activity.callers[0]).toMatchObject({ callsPerSecond: 0.1, refusedPerSecond: 0.1, refusals: 1 })
  expect(activity.callers.map(({ client, most }) => [client, most?.name])).toEqual([
    ['refused', 'sync'],
    ['only', 'sync'],
    ['most', 'other'],
    ['half', 'requests'],
    ['idle', undefined],
  ])
})
