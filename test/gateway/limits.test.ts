import { describe, expect, it } from 'vitest'
import { call, type Got, ROUTES, type Settings, startGateway, token, TOKENS } from '../helpers/gateway.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** Effects of the limiter's settings on real requests; the exactness of the counters is tested in `limit/`. */

const data = await startUpstream()
const gateway = (settings: Partial<Settings>) => startGateway({ data: data.url, ...settings })
const inMs = (ms: number) => new Date(Date.now() + ms).toISOString()
const HOUR = 3_600_000

describe("a client's own limit", () => {
  it('replaces the limit until its end, only for this client', async () => {
    const { port } = await gateway({
      more: `clients:
  - { id: big, limits: { requests: { limit: 5000, until: "${inMs(HOUR)}" } } }
  - { id: past, limits: { requests: { limit: 5000, until: "${inMs(-HOUR)}" } } }
  - { id: slow, limits: { requests: { limit: 2, window: 1h } } }
  - { id: blocked, limits: { requests: { limit: 0 } } }`,
    })
    const limitOf = async (client: string) =>
      (await call(port, { token: await token(client) })).headers['x-ratelimit-limit']
    expect(await limitOf('big')).toBe('5000')
    expect(await limitOf('past')).toBe('1000')
    expect(await limitOf('other')).toBe('1000')
    expect(await limitOf('slow')).toBe('2')
    const before = Date.now()
    const blocked = await call(port, { token: await token('blocked') })
    expect(blocked).toMatchObject({
      status: 429,
      headers: { 'x-ratelimit-limit': '0', 'x-ratelimit-remaining': '0', 'retry-after': '60' },
      json: { detail: 'The limit "requests" allows this client no calls.', retryAfterSecs: 60 },
    })
    expect(Date.parse(blocked.headers['x-ratelimit-reset'] as string)).toBeGreaterThanOrEqual(before + 59_000)
  })
})

describe('an announced change', () => {
  const limits = (changes: string) => ({
    routes: ROUTES.replace(
      'routes:\n',
      'routes:\n  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer }\n',
    ),
    limits: `limits:
  requests: { per: [client], limit: 1000, window: 1m, changes: [${changes}] }
  sync: { per: [client, connection], limit: 1, window: 5s }`,
  })

  it('an announced change is in force from its date, and reported earlier to callers who read the limits, which is not charged', async () => {
    const [announced, from] = [inMs(-HOUR), inMs(HOUR)]
    const { port } = await gateway(limits(`{ announced: "${announced}", from: "${from}", limit: 1200 }`))
    const mine = await token('acme')
    expect((await call(port, { token: mine })).headers['x-ratelimit-limit']).toBe('1000')
    for (let i = 0; i < 3; i++) {
      const got = await call(port, { path: '/v3/rate-limits', token: mine })
      expect(got.status).toBe(200)
      expect(got.headers['cache-control']).toBe('no-store')
      expect(got.headers).toMatchObject({ 'x-ratelimit-limit': '1000', 'x-ratelimit-remaining': '999' })
      expect(got.headers['x-ratelimit-reset']).toBe(got.json.limits[0].reset)
      expect(got.json).toEqual({
        limits: [
          {
            name: 'requests',
            limit: 1000,
            remaining: 999,
            windowSeconds: 60,
            reset: expect.stringMatching(/Z$/),
            changes: [{ announced, from, limit: 1200 }],
          },
        ],
      })
    }
    expect((await call(port, { path: '/v3/rate-limits' })).status).toBe(401)
  })

  it('an announced change is read as the last response said, though it was read just before', async () => {
    const { port } = await gateway(limits(''))
    const mine = await token('acme')
    const read = async () =>
      (await call(port, { path: '/v3/rate-limits', token: mine })).json.limits[0].remaining
    expect(await read()).toBe(1000)
    expect((await call(port, { token: mine })).headers['x-ratelimit-remaining']).toBe('999')
    expect(await read()).toBe(999)
  })

  it('an announced change with a past date is the limit', async () => {
    const { port } = await gateway(
      limits(`{ announced: "${inMs(-2 * HOUR)}", from: "${inMs(-HOUR)}", limit: 1200 }`),
    )
    expect((await call(port, { token: await token('acme') })).headers['x-ratelimit-limit']).toBe('1200')
  })
})

describe('the limit', () => {
  const routes = `routes:
  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer, scope: [read] }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, scope: [read], limits: [sync, requests], maxBody: 10B }
  - { match: "/per-user", upstream: data, authenticate: bearer, limits: [users, requests] }
  - { match: "/dead", upstream: identity, authenticate: bearer, limits: [requests] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`
  const limits = `limits:
  requests: { per: [client], limit: 10, window: 1m }
  sync: { per: [client, connection], limit: 3, window: 5s }
  users: { per: [user], limit: 7, window: 1m }`
  const open = (more: Partial<Settings> = {}) =>
    gateway({
      limits,
      routes,
      identity: 'http://127.0.0.1:1',
      more: 'parameters: { connection: integer }',
      ...more,
    })
  const shown = ({ status, headers }: Got) => [
    status,
    headers['x-ratelimit-limit'],
    headers['x-ratelimit-remaining'],
    headers['retry-after'],
  ]

  it.each(['memory', 'Redis'])(
    'the limit is reported on every response to an authenticated caller, without a charge: in %s',
    async (where) => {
      const store = `{ redis: { url: "${(await sharedRedis()).url}" }, prefix: readable, timeout: 10s }`
      const { port } = await open(where === 'Redis' ? { store } : {})
      const unscoped = await token('acme')
      const mine = await token('acme', { scope: 'read' })
      const sync = (connection: string, body = '', as = mine) =>
        call(port, { method: 'POST', path: `/sync/${connection}`, token: as, body })
      expect(shown(await sync('1'))).toEqual([200, '3', '2', undefined])
      for (let i = 0; i < 20; i++) {
        // Reported for the first limit whose parts are available and valid.
        expect(shown(await sync('x'))).toEqual([400, '10', '9', undefined])
        expect(shown(await sync('1', 'too long a body'))).toEqual([413, '3', '2', undefined])
        expect(shown(await sync('1', '', unscoped))).toEqual([403, '3', '2', undefined])
        expect(shown(await call(port, { path: '/v3/rate-limits', token: mine }))).toEqual([
          200,
          '10',
          '9',
          undefined,
        ])
        expect(shown(await call(port, { path: '/v3/rate-limits', token: unscoped }))).toEqual([
          403,
          '10',
          '9',
          undefined,
        ])
      }
      const nobody = await token('acme', { sub: undefined })
      expect(shown(await call(port, { path: '/per-user', token: nobody }))).toEqual([
        403,
        '10',
        '9',
        undefined,
      ])
      expect(shown(await call(port, { path: '/dead', token: mine }))).toEqual([502, '10', '8', undefined])
      expect(shown(await call(port, { token: mine }))).toEqual([200, '10', '7', undefined])
    },
  )

  it('the limit is not reported to callers without an accepted token', async () => {
    const { port } = await open()
    const path = '/sync/x'
    expect(shown(await call(port, { method: 'POST', path }))).toEqual([400, undefined, undefined, undefined])
    expect(shown(await call(port, { method: 'POST', path, token: 'x.y.z' }))).toEqual([
      ...[401, undefined, undefined, undefined],
    ])
  })

  it('the limit is not reported while Redis is unavailable, and the wait is at most its timeout', async () => {
    const { port } = await open({ store: '{ redis: { url: "redis://127.0.0.1:1" }, onOutage: deny }' })
    expect(shown(await call(port, { path: '/v3/rate-limits', token: await token('acme') }))).toEqual([
      ...[403, undefined, undefined, undefined],
    ])
  })
})

describe('a shadow limit', () => {
  it('counts and reports in addition to a live limit, and never refuses', async () => {
    const { port, adminPort } = await gateway({
      limits: `limits:
  requests: { per: [client], limit: 10, window: 1m }
  trial: { per: [client], limit: 2, window: 1m, shadow: true }`,
      routes: 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests, trial] }]',
    })
    const mine = await token('acme')
    for (let left = 9; left >= 5; left--) {
      expect(await call(port, { token: mine })).toMatchObject({
        status: 200,
        headers: { 'x-ratelimit-limit': '10', 'x-ratelimit-remaining': String(left) },
      })
    }
    const metrics = (await call(adminPort, { path: '/metrics' })).body
    expect(metrics).toContain('sluice_limit_decisions_total{limit="trial",outcome="shadow_over"} 3')
    expect(metrics).toContain('sluice_limit_decisions_total{limit="requests",outcome="within"} 5')
  })
})

describe('several limits of a route', () => {
  const route = 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests, hourly] }]'
  const limits = `limits:
  requests: { per: [client], limit: 2, window: 1m }
  hourly: { per: [user], limit: 2, window: 1h }`

  it('refuse with the longest wait if several are exceeded, and list them all', async () => {
    const { port } = await gateway({ limits, routes: route })
    const mine = await token('acme')
    for (let i = 0; i < 2; i++) await call(port, { token: mine })
    const got = await call(port, { token: mine })
    expect(got.headers['retry-after']).toBe('3600')
    expect(got.json['violated-policies']).toEqual(['requests', 'hourly'])
    expect(got.json.detail).toBe('The limit "hourly" allows 2 calls in 1 hour. Retry in 3600 seconds.')
  })

  it.each(['draft-10', 'draft-11'])(
    'several limits of a route are listed in RateLimit and RateLimit-Policy by %s',
    async (draft) => {
      const { port } = await gateway({ limits, routes: route, more: `headers: { draft: ${draft} }` })
      const got = await call(port, { token: await token('acme') })
      expect(got.headers).toMatchObject({
        'ratelimit-policy': '"requests";q=2;w=60, "hourly";q=2;w=3600',
        ratelimit: '"requests";r=1;t=60, "hourly";r=1;t=3600',
        'x-ratelimit-limit': '2',
      })
    },
  )

  it('several limits of a route are all reported for a cached refusal, too', async () => {
    const { port } = await gateway({ limits, routes: route, more: 'headers: { draft: draft-10 }' })
    const mine = await token('acme')
    for (let i = 0; i < 2; i++) await call(port, { token: mine })
    for (let i = 0; i < 2; i++) {
      expect((await call(port, { token: mine })).headers).toMatchObject({
        'ratelimit-policy': '"requests";q=2;w=60, "hourly";q=2;w=3600',
        ratelimit: expect.stringMatching(/^"requests";r=0;t=\d+, "hourly";r=0;t=\d+$/),
      })
    }
  })

  it('return a 403 for a token without a user if a limit is per user', async () => {
    const { port } = await gateway({ limits, routes: route })
    expect((await call(port, { token: await token('acme', { sub: undefined }) })).status).toBe(403)
  })
})

describe('per ip', () => {
  it('counts callers by the address that trusted proxies report, not by claims of the caller', async () => {
    const settings = {
      tokens: TOKENS,
      limits: 'limits: { address: { per: [ip], limit: 1, window: 1m } }',
      routes: 'routes: [{ match: "/*", upstream: data, authenticate: none, limits: [address] }]',
    }
    const open = await gateway(settings)
    const from = (port: number, forwarded: string) =>
      call(port, { headers: { 'X-Forwarded-For': forwarded } })
    expect((await from(open.port, '1.1.1.1')).status).toBe(200)
    expect((await from(open.port, '2.2.2.2')).status).toBe(429)

    const trusting = await gateway({ ...settings, trustedProxies: '[127.0.0.0/8, 10.0.0.0/8]' })
    expect((await from(trusting.port, '1.1.1.1')).status).toBe(200)
    expect((await from(trusting.port, '9.9.9.9, 1.1.1.1, 10.1.1.1')).status).toBe(429)
    expect((await from(trusting.port, '::ffff:1.1.1.1')).status).toBe(429)
    expect((await from(trusting.port, '2001:db8::1')).status).toBe(200)
    expect((await from(trusting.port, '2001:db8::2')).status).toBe(429)
    expect((await from(trusting.port, '2001:db8:0:1::1')).status).toBe(200)
    expect((await from(trusting.port, '1.1.1.1:5678')).status).toBe(429)
    expect((await from(trusting.port, '[2001:db8::9]:5678')).status).toBe(429)
  })
})
