import { once } from 'node:events'
import { get, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { call, startGateway, token, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { FULL } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The responses that the upstream holds back. */
const held: ServerResponse[] = []
const redis = await startRedis()
const data = await startUpstream((_, response) => void held.push(response))

afterEach(() => {
  for (const response of held.splice(0)) response.destroy()
})

const ROUTES = [
  { match: 'GET /v3/exports', upstream: 'data', authenticate: 'bearer', limits: ['exports', 'requests'] },
  { match: '/v3/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]
const LIMITS = {
  exports: { per: ['client'], concurrent: 2 },
  requests: { per: ['client'], limit: 1000, window: '1m' },
}
const shared = (timeout = '10s') => ({ redis: { url: redis.url }, timeout, onOutage: 'deny' })

const settings = (store: object | 'memory', timeout = '20s', limits: object = LIMITS) => ({
  ...{ data: data.url, store, timeout, routes: ROUTES, limits },
})

let clients = 0
const newToken = () => token(`client-${process.pid}-${++clients}`)
const request = (port: number, mine: string) => call(port, { path: '/v3/exports', token: mine })
const inProgress = (count: number) => until(`${count} calls are in progress`, () => held.length === count)

it('a gateway decides a limit that another gateway with the same Redis counts in a window', async () => {
  const inWindow = { ...LIMITS, exports: { per: ['client'], limit: 2, window: '1m' } }
  const [atOnce, counting] = await Promise.all([
    startGateway(settings(shared())),
    startGateway(settings(shared(), '20s', inWindow)),
  ])
  const mine = await newToken()
  const answering = setInterval(() => held.splice(0).forEach((response) => response.end('{}')), 5)
  const statuses: number[] = []
  for (const { port } of [counting, atOnce, counting, atOnce, counting])
    statuses.push((await request(port, mine)).status)
  clearInterval(answering)
  expect(statuses).toEqual([200, 200, 200, 200, 429])
})

describe.each([
  ['memory', () => 'memory' as const],
  ['Redis', shared],
] as const)('a limit of calls at once, counted in %s', (_, store) => {
  it('refuses a further call, and admits the next when one has ended', async () => {
    const { port } = await startGateway(settings(store()))
    const mine = await newToken()
    const [first, second] = [request(port, mine), request(port, mine)]
    await inProgress(2)
    const before = Date.now()
    const refused = await request(port, mine)
    expect(refused).toMatchObject({
      status: 429,
      headers: { 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '0', 'retry-after': '1' },
      json: { detail: 'The limit "exports" allows 2 calls at once. Retry in 1 second.', retryAfterSecs: 1 },
    })
    const resetMs = Date.parse(refused.headers['x-ratelimit-reset'] as string) - before
    expect(resetMs).toBeGreaterThan(900)
    expect(resetMs).toBeLessThan(6000)
    held.shift()!.end('{}')
    expect((await Promise.race([first, second])).status).toBe(200)
    const third = request(port, mine)
    await inProgress(2)
    for (const response of held.splice(0)) response.end('{}')
    expect((await third).headers['x-ratelimit-remaining']).toBe('0')
    await Promise.all([first, second])
  })

  it('charges no other limit for a refused call', async () => {
    const { port } = await startGateway(settings(store()))
    const mine = await newToken()
    const calls = [request(port, mine), request(port, mine)]
    await inProgress(2)
    for (let i = 0; i < 5; i++) expect((await request(port, mine)).status).toBe(429)
    const other = call(port, { path: '/v3/other', token: mine })
    await inProgress(3)
    for (const response of held.splice(0)) response.end('{}')
    expect((await other).headers['x-ratelimit-remaining']).toBe('997')
    await Promise.all(calls)
  })

  it.each([
    ['before the head', undefined],
    ['in the body', 'begun'],
  ])('keeps the place of a call whose caller leaves %s, as long as a lease', async (_, begun) => {
    // Leases of two seconds.
    const { port } = await startGateway(settings(store('500ms'), '2s'))
    const mine = await newToken()
    const headers = { authorization: `Bearer ${mine}` }
    const leaving = [1, 2].map(() => get({ port, path: '/v3/exports', headers }))
    const responses = leaving.map((one) => once(one, 'response').catch(() => {}))
    await inProgress(2)
    if (begun !== undefined) {
      for (const response of held) response.write(begun)
      await Promise.all(responses)
    }
    const leftAt = performance.now()
    for (const one of leaving) one.on('error', () => {}).destroy()
    await until('both have left', () => held.every(({ destroyed }) => destroyed))
    held.splice(0)
    let refusals = 0
    await until('a place is free', async () => {
      const asked = request(port, mine)
      await Promise.race([asked, until('it is answered, or in progress', () => held.length > 0)])
      if (held.length > 0) return true
      refusals++
      expect((await asked).status).toBe(429)
      return false
    })
    expect(refusals).toBeGreaterThan(0)
    expect(performance.now() - leftAt).toBeGreaterThan(1900)
    for (const response of held.splice(0)) response.end('{}')
  })

  it('keeps the place of a call whose body turns out to be malformed', async () => {
    const early = await startUpstream(
      undefined,
      (_, response) => void held.push(response.on('error', () => {})),
    )
    const routes = ROUTES.map((route) => ({ ...route, match: route.match.replace('GET', 'POST') }))
    const { port } = await startGateway({ ...settings(store()), data: early.url, routes })
    const mine = await newToken()
    const sockets = [1, 2].map(() =>
      connect(port)
        .on('error', () => {})
        .resume(),
    )
    for (const socket of sockets) {
      socket.write(`POST /v3/exports HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${mine}\r\n`)
      socket.write(`Transfer-Encoding: chunked\r\n\r\n20000\r\n${'a'.repeat(0x20000)}\r\n`)
    }
    await inProgress(2)
    for (const socket of sockets) socket.write('no size\r\n')
    await until('both have ended', () => sockets.every(({ destroyed }) => destroyed))
    held.splice(0)
    expect((await call(port, { path: '/v3/exports', token: mine, method: 'POST' })).status).toBe(429)
  })

  it('counts a response for as long as it lasts, beyond the timeout of its route', async () => {
    const { port } = await startGateway(settings(store(), '3s'))
    const mine = await newToken()
    const headers = { authorization: `Bearer ${mine}` }
    const asked = [1, 2].map(() => once(get({ port, path: '/v3/exports', headers }), 'response'))
    await inProgress(2)
    const beating = setInterval(() => held.forEach((response) => response.write('.')), 50)
    for (const [response] of (await Promise.all(asked)) as [IncomingMessage][])
      response.resume().on('error', () => {})
    try {
      const until = Date.now() + 5000
      while (Date.now() < until) {
        expect((await request(port, mine)).status).toBe(429)
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    } finally {
      clearInterval(beating)
    }
  })
})

describe('two gateways on one Redis', () => {
  it('never have more than the limit in progress, as the upstream sees it, under a crowd of callers', async () => {
    const [limit, callers] = [10, 200]
    let [now, most, done] = [0, 0, 0]
    const slow = await startUpstream(undefined, (_, response) => {
      most = Math.max(most, ++now)
      response.on('close', () => now--)
      setTimeout(() => response.end('{}'), 20 + Math.random() * 40)
    })
    const limits = {
      exports: { per: ['client'], concurrent: limit },
      requests: { per: ['client'], limit: 1_000_000, window: '1m' },
    }
    const ports = await Promise.all(
      [1, 2].map(async () => {
        const { port } = await startGateway({ ...settings(shared()), data: slow.url, limits })
        return port
      }),
    )
    const mine = await newToken()
    const until = Date.now() + 1000
    const statuses = new Set<number>()
    await Promise.all(
      Array.from({ length: callers }, async (_, i) => {
        while (Date.now() < until) {
          const { status } = await request(ports[i % 2]!, mine)
          statuses.add(status)
          if (status === 200) done++
        }
      }),
    )
    expect(statuses).toEqual(new Set([200, 429]))
    expect(most).toBeLessThanOrEqual(limit)
    expect(most).toBeGreaterThan(1)
    expect(done).toBeGreaterThan(limit)
  })

  it.runIf(FULL)('get the places of a killed gateway when its leases have ended by themselves', async () => {
    // Leases last four times the timeout of Redis at least.
    const store = { redis: { url: redis.url }, timeout: '500ms', onOutage: 'deny' }
    const killed = await serving(yaml(settings(store, '2s')))
    const other = await startGateway(settings(store, '2s'))
    const mine = await newToken()
    for (let i = 0; i < 2; i++) request(killed.port, mine).catch(() => {})
    await inProgress(2)
    expect((await request(other.port, mine)).status).toBe(429)
    killed.kill('SIGKILL')
    held.splice(0)
    let refusals = 0
    await until('a place is free', async () => {
      const asked = request(other.port, mine)
      await Promise.race([asked, until('it is answered, or in progress', () => held.length > 0)])
      if (held.length === 0 && (await asked).status === 429) refusals++
      return held.length > 0
    })
    expect(refusals).toBeGreaterThan(0)
  })
})
