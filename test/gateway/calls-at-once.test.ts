import type { ServerResponse } from 'node:http'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sluice } from '../commands/run.ts'
import { call, dataRoute, type Got, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { startRedis } from '../helpers/redis.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Limits of calls at once, as callers and operators see them. */

const LIMITS = {
  exports: { per: ['client'], concurrent: 2 },
  requests: { per: ['client'], limit: 1000, window: '1h' },
  everybody: { per: [], concurrent: 2 },
  addresses: { per: ['ip'], concurrent: 1 },
  connections: { per: ['client', 'connection'], concurrent: 1 },
  trial: { per: ['client'], concurrent: 1, shadow: true },
  single: { per: ['client'], concurrent: 1 },
  fixed: {
    per: ['client'],
    concurrent: 1,
    refusal: { status: 503, headers: { 'X-Reason': 'busy' }, body: 'Later.' },
  },
}
const ROUTES = [
  { match: 'GET /rate-limits', respond: 'limits', authenticate: 'bearer' },
  { match: '/open', upstream: 'data', authenticate: 'none', limits: ['addresses'] },
  dataRoute('/exports', ['exports', 'requests']),
  dataRoute('/everybody', ['everybody']),
  dataRoute('/trial', ['requests', 'trial']),
  dataRoute('/both', ['exports', 'single']),
  dataRoute('/fixed', ['fixed']),
  dataRoute('/points', ['requests', 'exports'], { cost: 4 }),
  dataRoute('/free', ['exports'], { cost: { exports: 0 } }),
  dataRoute('/connections/:connection', ['connections']),
]
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

let upstream: TestUpstream
/** The responses that the upstream holds back. */
const held: ServerResponse[] = []
beforeAll(async () => void (upstream = await startUpstream((_, response) => void held.push(response))))
afterAll(() => upstream.close())

describe.each([
  ['memory', async () => 'memory' as const],
  ['Redis', async () => ({ redis: { url: (await sharedRedis()).url }, prefix: 'at-once', timeout: '10s' })],
])('calls at once, counted in %s', (kind, store) => {
  let gateway: TestGateway
  let mine = ''
  let client = ''
  beforeAll(async () => {
    gateway = await startGateway({
      ...{ data: upstream.url, limits: LIMITS, routes: ROUTES, store: await store(), timeout: '30s' },
      more: {
        clients: [{ id: `own-${kind}`, limits: { exports: { limit: 1 } } }],
        headers: { draft: 'draft-10' },
      },
      trustedProxies: ['127.0.0.1'],
    })
  })
  afterAll(() => gateway.close())
  beforeEach(async ({ task }) => {
    client = `${kind}-${task.id}`
    mine = await token(client)
  })
  const running: Promise<unknown>[] = []
  afterEach(end)

  const ask = (path: string, bearer = mine, headers = {}): Promise<Got> =>
    call(gateway.port, { path, token: bearer, headers })
  /** Begins a call, and waits until it is in progress. */
  async function begin(...asked: Parameters<typeof ask>): Promise<void> {
    const [before, got] = [held.length, ask(...asked)]
    running.push(got)
    await until('the call is in progress', () => held.length > before)
  }
  /** Ends all calls, and waits for their responses. */
  async function end(): Promise<void> {
    for (const response of held.splice(0)) response.end('{}')
    await Promise.all(running.splice(0))
  }
  const usage = async (caller = client) =>
    (await call(gateway.adminPort, { path: `/limits/${encodeURIComponent(caller)}` })).json
  const command = (...args: string[]) => sluice([...args, '--admin', `http://127.0.0.1:${gateway.adminPort}`])

  it('are shown to the caller and to operators: how many are in progress, and since when the oldest', async () => {
    const none = (await ask('/rate-limits')).json.limits
    expect(none[0]).toEqual({
      ...{ name: 'exports', limit: 2, remaining: 2, inProgress: 0, oldest: null, changes: [] },
      reset: expect.stringMatching(INSTANT) as string,
    })
    expect(none[1]).toMatchObject({ name: 'requests', windowSeconds: 3600 })
    expect(none[1]).not.toHaveProperty('inProgress')
    const before = Date.now()
    await begin('/exports')
    const between = Date.now()
    await begin('/exports')
    const shown = (await ask('/rate-limits')).json.limits[0]
    expect(shown).toMatchObject({ remaining: 0, inProgress: 2 })
    // The clock of Redis is known to about a round trip.
    expect(Date.parse(shown.oldest)).toBeGreaterThan(before - 5000)
    expect(Date.parse(shown.oldest)).toBeLessThan(between + 5000)
    expect(Date.parse(shown.reset)).toBeGreaterThan(Date.parse(shown.oldest))

    const [exports, requests] = (await usage()).limits
    expect(exports).toMatchObject({ name: 'exports', used: 2, inProgress: 2, oldest: shown.oldest })
    expect(exports).not.toHaveProperty('windowSeconds')
    expect(requests).toMatchObject({ name: 'requests', used: 2, windowSeconds: 3600 })
    const { stdout } = await command('limits', 'show', client)
    expect(stdout).toMatch(
      new RegExp(`:exports +exports +2 +2 +0 +at once, the oldest since ${shown.oldest} +- +- +live$`, 'm'),
    )
    await end()
    await until('no call is in progress', async () => (await usage()).limits[0].inProgress === 0)
    const after = await command('limits', 'show', client)
    expect(after.stdout).toMatch(/:exports +exports +2 +0 +2 +at once +- +- +live$/m)
  })

  it('keep their places when their caller is reset', async () => {
    await begin('/exports')
    const reset = await command('limits', 'reset', client)
    expect(reset.stdout).toMatch(
      new RegExp(
        `^Freed [12] keys? of client:${client}\\. Calls in progress keep their places\\. Recorded as "loopback"\\.\n$`,
      ),
    )
    await until('it has its place', async () => (await usage()).limits[0].inProgress === 1)
    expect((await usage()).limits.find(({ name }: { name: string }) => name === 'requests').used).toBe(0)
    const again = await command('limits', 'reset', 'ip:192.0.2.77')
    expect(again.stdout).toBe(
      'Freed 0 keys of ip:192.0.2.77. Calls in progress keep their places. Recorded as "loopback".\n',
    )
  })

  it('are explained as in progress', async () => {
    await begin('/exports')
    const one = await command('explain', '/exports', '--client', client)
    expect(one.stdout).toMatch(/^exports +2 +1 +at once +live /m)
    expect(one.stdout).not.toContain('refused')
    await begin('/exports')
    const two = await command('explain', '/exports', '--client', client)
    expect(two.stdout).toMatch(/^refused +now +by the limit "exports": 2 of 2 calls are in progress$/m)
    const { limits } = JSON.parse((await command('explain', '/exports', '--client', client, '--json')).stdout)
    expect(limits[0]).toMatchObject({ name: 'exports', limit: 2, used: 2 })
    expect(limits[0]).not.toHaveProperty('windowMs')
  })

  it('are refused with the text, the policies and the fields of the draft', async () => {
    await begin('/both')
    const refused = await ask('/both')
    expect(refused).toMatchObject({
      status: 429,
      headers: {
        ...{ 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0', 'retry-after': '1' },
        'ratelimit-policy': '"exports";q=2;qu="concurrent-requests", "single";q=1;qu="concurrent-requests"',
        // With Redis, the gateway refuses by its own calls, without the other limit.
        ratelimit: expect.stringContaining('"single";r=0;t=1') as string,
      },
      json: {
        detail: 'The limit "single" allows 1 call at once. Retry in 1 second.',
        'violated-policies': ['single'],
      },
    })
    await begin('/exports')
    const full = await ask('/both')
    expect(full.json).toMatchObject({
      detail: 'The limit "exports" allows 2 calls at once. Retry in 1 second.',
      'violated-policies': ['exports', 'single'],
    })
    const mixed = await ask('/exports')
    expect(mixed.headers['ratelimit-policy']).toBe(
      '"exports";q=2;qu="concurrent-requests", "requests";q=1000;w=3600',
    )
    expect(mixed.json['violated-policies']).toEqual(['exports'])
  })

  it('get the configured refusal', async () => {
    await begin('/fixed')
    expect(await ask('/fixed')).toMatchObject({
      ...{ status: 503, body: 'Later.' },
      headers: { 'x-reason': 'busy', 'x-ratelimit-limit': '1', 'retry-after': '1' },
    })
  })

  it('are those of all callers together, or of an address', async () => {
    await begin('/everybody', await token(`${client}-a`))
    await begin('/everybody', await token(`${client}-b`))
    expect((await ask('/everybody', await token(`${client}-c`))).json.detail).toBe(
      'The limit "everybody" allows 2 calls at once. Retry in 1 second.',
    )
    const from = (address: string) => ({ 'X-Forwarded-For': address })
    await begin('/open', undefined, from('192.0.2.1'))
    await begin('/open', undefined, from('192.0.2.2'))
    expect((await ask('/open', undefined, from('192.0.2.1'))).status).toBe(429)
    expect((await usage('ip:192.0.2.1')).limits).toMatchObject([{ name: 'addresses', inProgress: 1 }])
  })

  it('are listed for each counter of a client that has calls in progress', async () => {
    await begin('/connections/a')
    await begin('/connections/b')
    expect((await ask('/connections/a')).status).toBe(429)
    const rows = async () =>
      (await usage()).limits.filter(({ name }: { name: string }) => name === 'connections')
    expect(await rows()).toMatchObject([
      { key: expect.stringContaining(':connections:a') as string, inProgress: 1 },
      { key: expect.stringContaining(':connections:b') as string, inProgress: 1 },
    ])
    await end()
    await until('they have ended', async () => (await rows()).length === 0)
  })

  it('obey a client’s own number, and an override before it', async () => {
    const own = await token(`own-${kind}`)
    await begin('/exports', own)
    expect((await ask('/exports', own)).headers['x-ratelimit-limit']).toBe('1')
    const set = await command('limits', 'set', `own-${kind}`, 'exports=3')
    expect(set.stdout).toContain(`Set "exports" of client:own-${kind} to 3`)
    await begin('/exports', own)
    await begin('/exports', own)
    expect((await ask('/exports', own)).json.detail).toContain('allows 3 calls at once')
    expect((await usage(`own-${kind}`)).limits[0]).toMatchObject({
      ...{ limit: 3, inProgress: 3, remaining: 0, override: true },
    })
    await command('limits', 'set', `own-${kind}`, 'exports=0')
    await end()
    const blocked = await ask('/exports', own)
    expect(blocked.json.detail).toBe('The limit "exports" allows this client no calls.')
    await command('limits', 'set', `own-${kind}`, 'exports=default')
    await begin('/exports', own)
  })

  it('are counted by a shadow limit, which refuses none', async () => {
    await begin('/trial')
    await begin('/trial')
    const trial = (await usage()).limits.find(({ name }: { name: string }) => name === 'trial')
    expect(trial).toMatchObject({ limit: 1, inProgress: 1, remaining: 0, shadow: true })
    await end()
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    expect(body).toContain('sluice_limit_decisions_total{limit="trial",outcome="shadow_over"} 1')
  })

  it('take one place each at a route with a cost, and none at a cost of 0', async () => {
    await begin('/points')
    const [exports, requests] = (await usage()).limits
    expect([exports.inProgress, requests.used]).toEqual([1, 4])
    await begin('/free')
    expect((await usage()).limits[0].inProgress).toBe(1)
  })

  it('have no window in the overview', async () => {
    await begin('/exports')
    await end()
    const overview = async () => (await call(gateway.adminPort, { path: '/overview' })).json
    const [exports, requests] = (await overview()).limits
    expect(exports).toEqual({ name: 'exports', per: ['client'], shadow: false, limit: 2, changes: [] })
    expect(requests).toMatchObject({ windowSeconds: 3600 })
    const limitOf = async () =>
      (await overview()).activity.callers
        .find(({ caller }: { caller: string }) => caller === `client:${client}`)
        ?.limits.find(({ name }: { name: string }) => name === 'exports')
    await until('no call is taken for one in progress', async () => (await limitOf())?.remaining === 2)
    expect(await limitOf()).not.toHaveProperty('windowSeconds')
  })
})

it('a refused call does not make the next reading ask Redis again', async () => {
  const redis = await startRedis()
  const gateway = await startGateway({
    ...{ data: upstream.url, limits: LIMITS, routes: ROUTES, timeout: '30s' },
    store: { redis: { url: `unix://${redis.url}` }, prefix: 'read-once', timeout: '10s' },
  })
  const bearer = await token('reader')
  const running = call(gateway.port, { path: '/both', token: bearer })
  await until('the call is in progress', () => held.length > 0)
  const readings = async () =>
    Number(/^cmdstat_zrange:calls=(\d+)/m.exec(String(await redis.command('INFO', 'commandstats')))?.[1] ?? 0)
  const before = await readings()
  const startedAt = performance.now()
  for (let i = 0; i < 20; i++) {
    expect((await call(gateway.port, { path: '/both', token: bearer })).status).toBe(429)
    expect((await call(gateway.port, { path: '/rate-limits', token: bearer })).status).toBe(200)
  }
  const seconds = Math.ceil((performance.now() - startedAt) / 1000)
  // Once a second, each of the client's three limits of calls at once that are not shadows.
  expect((await readings()) - before).toBeLessThanOrEqual(4 * (seconds + 1))
  for (const response of held.splice(0)) response.end('{}')
  await running
  await gateway.close()
  await redis.close()
})
