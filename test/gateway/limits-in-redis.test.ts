import { describe, expect, it } from 'vitest'
import { call, ROUTES, type Settings, startLogging, token } from '../helpers/gateway.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const redis = await startRedis()
const data = await startUpstream()

const gateway = (settings: Partial<Settings> = {}) =>
  startLogging({ data: data.url, store: { redis: { url: redis.url }, onOutage: 'deny' }, ...settings })

const WITH_HEALTH = [...ROUTES, { match: 'GET /health', respond: 'health', authenticate: 'none' }]

/** Routes with a limit each, except the probe of health. */
const ALL_LIMITED = [
  { match: 'GET /health', respond: 'health', authenticate: 'none' },
  { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]

let clients = 0
const newClient = () => `client-${process.pid}-${++clients}`

describe('while Redis is down', () => {
  it('starts without it, with a warning, and decides once Redis is up', async () => {
    await redis.kill()
    const { port, adminPort, lines } = await gateway({ routes: WITH_HEALTH })
    expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
    const mine = await token(newClient())
    expect((await call(port, { token: mine })).status).toBe(503)
    await until('a warning', () => lines().some(({ level }) => level === 'warn'))
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 0\n')
    // The routes without limits are served.
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(200)
    expect((await call(port, { path: '/health' })).status).toBe(200)
    await redis.start()
    await until('calls are decided', async () => (await call(port, { token: mine })).status === 200)
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 1\n')
    expect((await call(adminPort, { path: '/readyz' })).status).toBe(200)
    const { status, headers, body } = await call(port, { path: '/health' })
    expect([status, headers['content-type'], body]).toEqual([200, 'text/plain; charset=utf-8', 'ready\n'])
    expect(headers).not.toHaveProperty('x-ratelimit-limit')
  })

  it('is not ready from the first call that a full Redis cannot count, if every route needs it', async () => {
    const { port, adminPort } = await gateway({ routes: ALL_LIMITED })
    const mine = await token(newClient())
    expect((await call(port, { token: mine })).status).toBe(200)
    await redis.command('CONFIG', 'SET', 'maxmemory', '1')
    expect((await call(port, { token: mine })).status).toBe(503)
    // The limits can still be read in Redis: only writes are refused.
    expect(await redis.command('PING')).toBe('PONG')
    const { status, body } = await call(adminPort, { path: '/readyz' })
    expect([status, body]).toEqual([
      503,
      'not ready: Redis does not answer or is full, and every route has a limit under onOutage: deny\n',
    ])
    expect((await call(port, { path: '/health' })).status).toBe(503)
    expect((await call(adminPort, { path: '/metrics' })).body).toContain('\nsluice_store_up 0\n')
    await redis.command('CONFIG', 'SET', 'maxmemory', '0')
    await until('it is ready', async () => (await call(adminPort, { path: '/readyz' })).status === 200)
    expect((await call(port, { token: mine })).status).toBe(200)
  })
})
