import { once } from 'node:events'
import { get, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { type AdminParts, createAdmin } from '../../src/admin/server.ts'
import { call, type Call, startGateway, type TestGateway, token, yaml } from '../helpers/gateway.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { type SharedRedis } from '../helpers/redis.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TOKEN = 'an-operator-s-token'
const EVENTS = { Accept: 'text/event-stream' }

let server: Server | undefined
afterEach(() => {
  vi.useRealTimers()
  server?.closeAllConnections()
  server?.close()
})

async function admin(parts: Partial<AdminParts> = {}) {
  const reset = vi.fn<AdminParts['reset']>(async () => 1)
  const created = createAdmin({
    ...{ notReadyReason: () => undefined, metrics: async () => '', metricsType: 'text/plain' },
    ...{ token: undefined, onLoopback: true, failed: () => {}, reset },
    usage: async (client) => ({ client, limits: [], own: [], overrides: [], truncated: false }),
    overview: async () => ({ shown: true }),
    setLimits: async (setting) => setting,
    overrides: async () => [],
    explain: async (question) => question,
    ...parts,
  })
  ;({ server } = created)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const ask = (path: string, more: Call = {}) => call(port, { path, ...more })
  return { ...created, ask, reset, port }
}

/** Opens a stream of events and collects them. */
async function stream(port: number, headers: Record<string, string> = {}) {
  const request = get({
    host: '127.0.0.1',
    port,
    path: '/overview',
    agent: false,
    headers: { ...EVENTS, ...headers },
  })
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  let text = ''
  response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  const ended = new Promise<boolean>((resolve) => response.once('close', () => resolve(response.complete)))
  response.on('error', () => {})
  const events = () =>
    text
      .split('\n\n')
      .slice(0, -1)
      .map((event) => JSON.parse(event.slice(6)))
  return { response, events, ended, leave: () => response.destroy() }
}

describe('the page', () => {
  it('is served to anyone, holds no data, and loads nothing from other origins', async () => {
    for (const parts of [{}, { token: TOKEN }, { onLoopback: false }]) {
      const { ask } = await admin(parts)
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
      server?.close()
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
    const { ask } = await admin()
    const got = await ask(path, { method })
    expect(got.status).toBe(status)
    if (status === 405) expect(got.headers['allow']).toBe('GET, HEAD')
    if (method === 'HEAD') expect(got.body).toBe('')
  })

  it('can be linked from other sites, but not loaded by them', async () => {
    const { ask } = await admin()
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
  it('is allowed with the token, from any page', async () => {
    const { ask } = await admin({ token: TOKEN })
    for (const headers of [{}, { Authorization: 'Bearer wrong' }, EVENTS]) {
      expect(await ask('/overview', { headers })).toMatchObject({ status: 401, json: { status: 401 } })
    }
    const got = await ask('/overview', {
      headers: { Authorization: `Bearer ${TOKEN}`, Origin: 'https://ops.example' },
    })
    expect(got).toMatchObject({ status: 200, json: { shown: true } })
    expect(got.headers['access-control-allow-origin']).toBeUndefined()
  })

  it('is denied if the listener is not on loopback and has no token', async () => {
    const { ask } = await admin({ onLoopback: false })
    expect(await ask('/overview', { headers: EVENTS })).toMatchObject({ status: 403 })
  })

  it('is allowed without a token only to the page of this listener', async () => {
    const { ask, reset, port } = await admin()
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
    expect(reset).not.toHaveBeenCalled()
    expect((await ask('/overview', { headers: own })).status).toBe(200)
    expect((await ask('/limits/a', { method: 'DELETE', headers: own })).json).toEqual({
      client: 'a',
      freed: 1,
    })
  })
})

describe('a stream of the overview', () => {
  it('sends the overview at once, then each second, read once for all streams', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    let read = 0
    const { port } = await admin({ overview: async () => ({ read: ++read }) })
    const one = await stream(port)
    expect(one.response.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
    })
    await until('the first', () => one.events().length === 1)
    const other = await stream(port)
    await until('its first', () => other.events().length === 1)
    vi.advanceTimersByTime(1000)
    await until('the next', () => one.events().length === 2 && other.events().length === 2)
    expect([one.events(), other.events()]).toEqual([
      [{ read: 1 }, { read: 3 }],
      [{ read: 2 }, { read: 3 }],
    ])
    one.leave()
    other.leave()
    await until('no timer', () => vi.getTimerCount() === 0)
  })

  it('is refused beyond twenty, until one is closed, and continues after a failed read', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    let fails = true
    const { port, ask } = await admin({
      overview: () => (fails ? Promise.reject(new Error('away')) : Promise.resolve({})),
    })
    const open = await Promise.all(Array.from({ length: 20 }, () => stream(port)))
    const refused = await ask('/overview', { headers: EVENTS })
    expect(refused).toMatchObject({
      status: 503,
      json: { detail: '20 consoles are open already.' },
    })
    expect(refused.headers['retry-after']).toBe('5')
    open[0]!.leave()
    await until('room for another', async () => (await stream(port)).response.statusCode === 200)
    fails = false
    vi.advanceTimersByTime(1000)
    await until('an event', () => open[1]!.events().length === 1)
  })

  it('drops events for a slow reader, and closes its stream after thirty', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    let reads = 0
    const large = 'x'.repeat(4_000_000)
    const { port, server } = await admin({ overview: async () => ({ large, read: ++reads }) })
    const sockets: { writableLength: number; destroyed: boolean }[] = []
    server.on('connection', (socket) => sockets.push(socket))
    const socket = connect(port, '127.0.0.1').pause()
    socket.write('GET /overview HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n')
    await until('it is read once', () => reads === 1)
    // The kernel buffers some of the first events.
    for (let i = 2; i <= 50 && !sockets[0]!.destroyed; i++) {
      vi.advanceTimersByTime(1000)
      await until('it is read again, or closed', () => reads === i || sockets[0]!.destroyed)
      expect(sockets[0]!.writableLength).toBeLessThan(1.5 * large.length)
    }
    await until('it is closed', () => sockets[0]!.destroyed)
    socket.destroy()
  })
})

describe('a gateway', () => {
  let upstream: TestUpstream
  let redis: SharedRedis
  beforeAll(async () => {
    upstream = await startUpstream()
    redis = await sharedRedis()
  })
  afterAll(() => upstream.close())

  const store = (prefix: string) => `{ redis: { url: "${redis.url}" }, prefix: ${prefix}, timeout: 5s }`
  const overviewOf = async (port: number) => (await call(port, { path: '/overview' })).json

  it('ends the streams at the end of its drain', async () => {
    const gateway: TestGateway = await startGateway({ data: upstream.url })
    const open = await stream(gateway.adminPort)
    await until('it shows that it is ready', () => open.events().at(-1)?.notReady === null)
    const closing = gateway.running.close({ lameDuck: true })
    expect((await overviewOf(gateway.adminPort)).notReady).toBe('the gateway is draining')
    expect(await open.ended).toBe(true)
    await closing
  })

  it('shows its limits, store, upstreams, keys and reloads', async () => {
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
        store: { up: true, modes: ['store'] },
        upstreams: [{ upstream: 'identity' }, { upstream: 'data', address: upstream.url, up: true }],
        issuers: [{ issuer: 'https://identity.example.com/oidc' }],
      },
      reloads: [],
    })
    await gateway.close()
  })

  describe('of two workers', () => {
    let gateway: ServingProcess
    beforeAll(async () => {
      const more = { limit: 3, store: store('overview-two'), more: 'drainTimeout: 100ms' }
      gateway = await serving(yaml({ data: upstream.url, ...more }), ['--workers', '2'])
    })
    afterAll(async () => {
      gateway.kill('SIGTERM')
      await gateway.ended()
    })

    it('shows the sum of both, refused clients, and none after a reset', async () => {
      const acme = await token('acme')
      const statuses = new Set<number>()
      for (let i = 0; i < 8; i++) {
        const headers = { Connection: 'close' }
        statuses.add((await call(gateway.port, { token: acme, headers })).status)
      }
      expect([...statuses]).toEqual([200, 429])
      const clients = async () => (await overviewOf(gateway.adminPort)).activity.clients
      const total = (counts: number[]) => counts.reduce((sum, count) => sum + count, 0)
      await until('all calls', async () => total((await clients())[0]?.calls ?? []) === 8)
      expect(await clients()).toMatchObject([
        {
          client: 'acme',
          refusedNow: { limit: 'requests' },
          most: { name: 'requests', limit: 3, remaining: 0 },
        },
      ])
      expect(total((await clients())[0].refused)).toBe(5)
      expect((await overviewOf(gateway.adminPort)).status.workers).toBe(2)
      expect((await call(gateway.adminPort, { path: '/limits/acme', method: 'DELETE' })).status).toBe(200)
      expect(await clients()).toMatchObject([{ client: 'acme', refusedNow: null, most: null }])
    })
  })
})
