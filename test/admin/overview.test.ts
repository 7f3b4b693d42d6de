import { startAdmin } from '../helpers/admin.ts'
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { type SharedRedis } from '../helpers/redis.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TOKEN = 'an-operator-s-token'

describe('the page', () => {
  it('the page is served to anyone, holds no data, and loads nothing from other origins', async () => {
    for (const parts of [{}, { token: TOKEN }, { onLoopback: false }]) {
      const { ask } = await startAdmin(parts)
      const page = await ask('/', { headers: { Host: 'gateway.internal' } })
      expect(page).toMatchObject({ status: 200, headers: { 'content-type': 'text/html; charset=utf-8' } })
      expect(page.body).not.toMatch(/<style|style=|<script(?! type="module" src="\/console\/)|\son\w+=/)
      const files = [...page.body.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path]) => path!)
      expect(files).toContain('/console/style.css')
      for (const path of ['/', ...files]) {
        const { status, headers } = await ask(path)
        expect([path, status]).toEqual([path, 200])
        const policy = String(headers['content-security-policy'])
        for (const part of [
          "default-src 'none'",
          "script-src 'self'",
          "connect-src 'self'",
          "frame-ancestors 'none'",
        ])
          expect(policy).toContain(part)
        expect(policy).not.toContain('unsafe')
        expect(headers).toMatchObject({
          'x-content-type-options': 'nosniff',
          'referrer-policy': 'no-referrer',
        })
      }
    }
  })

  it.for([
    ['HEAD', '/', 200],
    ['POST', '/', 405],
    ['OPTIONS', '/', 405],
    ['DELETE', '/overview', 405],
    ['GET', '/console', 404],
    ['GET', '/console/', 404],
    ['GET', '/console/nothing.js', 404],
    ['GET', '/console/../server.ts', 404],
    ['GET', '/console/%2e%2e/server.ts', 404],
    ['GET', '//', 404],
  ] as const)('answers %s %s with %i', async ([method, path, status]) => {
    const { ask } = await startAdmin()
    const got = await ask(path, { method })
    expect(got.status).toBe(status)
    if (status === 405) expect(got.headers['allow']).toBe('GET, HEAD')
    if (method === 'HEAD') expect(got.body).toBe('')
  })

  it('the page can be linked from other sites, but not loaded by them', async () => {
    const { ask } = await startAdmin()
    const fetched = {
      'Sec-Fetch-Site': 'cross-site',
      'Sec-Fetch-Mode': 'no-cors',
      'Sec-Fetch-Dest': 'script',
    }
    const followed = { ...fetched, 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' }
    const framed = { ...followed, 'Sec-Fetch-Dest': 'iframe' }
    expect((await ask('/', { headers: followed })).status).toBe(200)
    for (const headers of [fetched, framed]) expect((await ask('/', { headers })).status).toBe(403)
    for (const path of ['/overview', '/limits/a'])
      expect((await ask(path, { headers: followed })).status).toBe(403)
  })
})

describe('access to the overview and the reset', () => {
  it('access is allowed with the token, from any page', async () => {
    const { ask } = await startAdmin({ token: TOKEN })
    for (const headers of [{}, { Authorization: 'Bearer wrong' }])
      expect(await ask('/overview', { headers })).toMatchObject({ status: 401, json: { status: 401 } })
    const got = await ask('/overview', {
      headers: { Authorization: `Bearer ${TOKEN}`, Origin: 'https://ops.example' },
    })
    expect(got).toMatchObject({ status: 200, json: { shown: true } })
    expect(got.headers['access-control-allow-origin']).toBeUndefined()
  })

  it('access is denied if the listener is not on loopback and has no token', async () => {
    const { ask } = await startAdmin({ onLoopback: false })
    expect(await ask('/overview')).toMatchObject({ status: 403 })
  })

  it('access without a token is allowed only to the page of this listener', async () => {
    const { ask, asked, port } = await startAdmin()
    const own = {
      Host: `localhost:${port}`,
      Origin: `http://localhost:${port}`,
      'Sec-Fetch-Site': 'same-origin',
    }
    const others = [
      { ...own, Origin: 'http://localhost:1' },
      { ...own, Origin: `https://localhost:${port}` },
      { ...own, Origin: `http://127.0.0.1:${port}` },
      { ...own, Origin: 'null' },
      { ...own, 'Sec-Fetch-Site': 'same-site' },
      { ...own, 'Sec-Fetch-Site': 'cross-site' },
      // DNS rebinding: the page's own name, bound to this address.
      { ...own, Host: 'evil.example', Origin: 'http://evil.example' },
    ]
    for (const headers of others) {
      for (const [path, method] of [
        ['/overview', 'GET'],
        ['/limits/a', 'GET'],
        ['/limits/a', 'DELETE'],
        ['/limits/a', 'OPTIONS'],
      ] as const)
        expect([headers, method, (await ask(path, { method, headers })).status]).toEqual([
          headers,
          method,
          403,
        ])
    }
    expect(asked).toEqual([])
    expect((await ask('/overview', { headers: own })).status).toBe(200)
    expect((await ask('/limits/a', { method: 'DELETE', headers: own })).json).toEqual({
      caller: 'client:a',
      freed: 2,
      by: 'loopback',
    })
  })
})

describe('the overview', () => {
  it('the overview is read at most once a second for all consoles, also if the read fails', async () => {
    let reads = 0
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const { ask } = await startAdmin({
      overview: () => (++reads === 2 ? Promise.reject(new Error('away')) : Promise.resolve({ reads })),
    })
    const both = async () => {
      const got = await Promise.all([ask('/overview'), ask('/overview')])
      return got.map(({ status, json, headers }) => [status, json.reads, headers['retry-after']])
    }
    const first = [200, 1, undefined]
    expect(await both()).toEqual([first, first])
    vi.advanceTimersByTime(999)
    expect(await both()).toEqual([first, first])
    vi.advanceTimersByTime(1)
    const failed = [503, undefined, '1']
    expect(await both()).toEqual([failed, failed])
    vi.advanceTimersByTime(1000)
    expect((await ask('/overview')).json).toEqual({
      ...{ reads: 3, operator: { name: 'loopback', may: 'set' } },
    })
  })
})

describe('a gateway', () => {
  let upstream: TestUpstream
  let redis: SharedRedis
  beforeAll(async () => {
    upstream = await startUpstream()
    redis = await sharedRedis()
  })

  const store = (prefix: string) => ({ redis: { url: redis.url }, prefix, timeout: '5s' })
  const overviewOf = async (port: number) => (await call(port, { path: '/overview' })).json

  it('the overview shows that the gateway drains', async () => {
    const gateway: TestGateway = await startGateway({ data: upstream.url })
    const closing = gateway.running.close({ lameDuck: true })
    const shown = async () => (await overviewOf(gateway.adminPort)).notReady as string | null
    await until('it is not ready', async () => (await shown()) !== null)
    expect(await shown()).toBe('the gateway is draining')
    await closing
  })

  it('the overview shows limits, store, upstreams, keys and reloads', async () => {
    const gateway = await startGateway({ data: upstream.url, store: store('overview-one') })
    await until('it is ready', async () => (await overviewOf(gateway.adminPort)).notReady === null)
    expect(await overviewOf(gateway.adminPort)).toMatchObject({
      counts: 'Redis',
      limits: [
        { name: 'requests', per: ['client'], limit: 1000, windowSeconds: 60, shadow: false, changes: [] },
        { name: 'sync', per: ['client', 'connection'], limit: 1, windowSeconds: 5 },
      ],
      status: {
        workers: 1,
        store: { outage: null, modes: ['store'] },
        upstreams: [{ upstream: 'identity' }, { upstream: 'data', address: upstream.url, up: true }],
        issuers: [{ issuer: 'https://identity.example.com/oidc' }],
      },
      reloads: [],
    })
  })
})
