import { describe, expect, it } from 'vitest'
import { call, type Got, startGateway, token } from '../helpers/gateway.ts'
import { makeKey, signProof, thumbprintOf } from '../helpers/issuer.ts'
import { readsOfCounters, startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOST = 'api.example.com'
const LIMIT = 3
const key = makeKey('ES256')

const [redis, data] = await Promise.all([startRedis(), startUpstream()])
const start = () =>
  startGateway({
    data: data.url,
    limits: {
      requests: { per: ['client'], limit: LIMIT, window: '1m' },
      unattended: { per: ['user'], limit: 100, window: '1m', unless: { header: 'psu-ip-address', is: 'ip' } },
      orgs: { per: ['header:X-Org'], limit: 100, window: '1m', missing: 'skip' },
    },
    // A long timeout, so that a busy machine does not cause an outage.
    store: { redis: { url: redis.url }, timeout: '10s', onOutage: 'deny' },
    routes: [
      { match: `${HOST}/free`, upstream: 'data', authenticate: 'bearer' },
      { match: `${HOST}/users`, upstream: 'data', authenticate: 'bearer', limits: ['unattended', 'orgs'] },
      { match: `${HOST}/orgs`, upstream: 'data', authenticate: 'bearer', limits: ['orgs', 'unattended'] },
      { match: `${HOST}/*`, upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
    ],
  })
const gateways = [await start(), await start()] as const

let clients = 0
const bound = () => token(`client-${++clients}`, { cnf: { jkt: thumbprintOf(key) } })
const prove = (token: string, path = '/transactions') =>
  signProof({ key, token, url: `http://${HOST}${path}` })
const send = (
  token: string,
  proof: string,
  { port }: { readonly port: number } = gateways[0],
  path = '/transactions',
  headers = {},
): Promise<Got> =>
  call(port, { path, headers: { Host: HOST, Authorization: `DPoP ${token}`, DPoP: proof, ...headers } })
const statuses = (answers: readonly Got[]) => answers.map(({ status }) => status)

describe('a proof', () => {
  it('a proof is accepted once, by one of two gateways that share a Redis', async () => {
    const mine = await bound()
    const proof = prove(mine)
    expect(statuses([await send(mine, proof), await send(mine, proof, gateways[1])])).toEqual([200, 401])
    const other = prove(mine)
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => send(mine, other, gateways[i % 2 === 0 ? 0 : 1])),
    )
    expect(statuses(answers).filter((status) => status === 200)).toHaveLength(1)
  })

  it.each(['/users', '/orgs'])('a proof is accepted once on %s, also with limits left out', async (path) => {
    const all = [{}, { 'psu-ip-address': '192.0.2.1' }, { 'X-Org': 'a' }, { 'X-Org': 'b' }]
    for (const first of all) {
      const mine = await bound()
      const proof = prove(mine, path)
      const answers = [await send(mine, proof, gateways[0], path, first)]
      for (const headers of all) answers.push(await send(mine, proof, gateways[1], path, headers))
      expect(statuses(answers)).toEqual([200, 401, 401, 401, 401])
    }
  })

  it('a proof that is replayed is not charged', async () => {
    const mine = await bound()
    const proof = prove(mine)
    expect((await send(mine, proof)).headers['x-ratelimit-remaining']).toBe(String(LIMIT - 1))
    for (let i = 0; i < 5; i++) expect((await send(mine, proof)).status).toBe(401)
    expect((await send(mine, prove(mine))).headers['x-ratelimit-remaining']).toBe(String(LIMIT - 2))
  })

  it('a proof is accepted once on a path without limits, too', async () => {
    const mine = await bound()
    const proof = prove(mine, '/free')
    const answers = [
      await send(mine, proof, gateways[0], '/free'),
      await send(mine, proof, gateways[1], '/free'),
    ]
    expect(statuses(answers)).toEqual([200, 401])
  })
})

describe('a caller over its limit', () => {
  it('reads no counter while its refusal is cached, and its proofs stay usable once', async () => {
    const mine = await bound()
    const used = prove(mine)
    await send(mine, used)
    for (let i = 1; i < LIMIT; i++) await send(mine, prove(mine))
    const before = data.seen.length
    let again = ''
    await until('ten calls within the second in which a refusal is cached', async () => {
      const started = performance.now()
      expect((await send(mine, prove(mine))).status).toBe(429)
      const earlier = await readsOfCounters(redis)
      again = prove(mine)
      const answers = []
      for (let i = 0; i < 10; i++) answers.push(await send(mine, i % 2 === 0 ? prove(mine) : again))
      const reads = (await readsOfCounters(redis)) - earlier
      if (performance.now() - started >= 1000) return false
      expect(reads).toBe(0)
      expect(statuses(answers)).toEqual(Array(10).fill(429))
      return true
    })
    expect(data.seen.length).toBe(before)
    await call(gateways[0].adminPort, { method: 'DELETE', path: `/limits/client-${clients}` })
    const freed = [await send(mine, used), await send(mine, again), await send(mine, again)]
    expect(statuses(freed)).toEqual([401, 200, 401])
  })
})

describe('while Redis is silent', () => {
  it('a call with a proof, or a request for the limits, waits for Redis once', async () => {
    const timeoutMs = 2000
    const silent = await startGateway({
      data: data.url,
      store: { redis: { url: redis.url }, prefix: 'silent', timeout: `${timeoutMs}ms` },
      routes: [
        { match: `${HOST}/limits`, respond: 'limits', authenticate: 'bearer' },
        { match: `${HOST}/*`, upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
      ],
    })
    const mine = await bound()
    expect((await send(mine, prove(mine), silent)).status).toBe(200)
    redis.freeze()
    try {
      const startedAt = performance.now()
      const answers = await Promise.all([
        send(mine, prove(mine), silent),
        send(mine, prove(mine, '/limits'), silent, '/limits'),
      ])
      expect(statuses(answers)).toEqual([200, 200])
      expect(performance.now() - startedAt).toBeLessThan(1.9 * timeoutMs)
    } finally {
      redis.thaw()
      await silent.close()
    }
  })
})

describe('while Redis is gone', () => {
  it('a proof that cannot be checked for replay gets a 503, and stays usable', async () => {
    const mine = await bound()
    const proof = prove(mine)
    await redis.kill()
    const refused = await send(mine, proof)
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1'])
    await redis.start()
    await until('Redis is asked again', async () => (await send(mine, proof)).status === 200)
    expect((await send(mine, proof)).status).toBe(401)
  })
})

it('a proof names listen.publicUrl, where TLS and a path prefix end before the gateway', async () => {
  const gateway = await startGateway({ data: data.url, listen: { publicUrl: 'https://public.example/bank' } })
  const mine = await bound()
  const sent = (url: string) => signProof({ key, token: mine, url })
  const statusOf = async (url: string) => (await send(mine, sent(url), gateway)).status
  expect(await statusOf('https://public.example/bank/transactions')).toBe(200)
  expect(await statusOf('https://public.example/transactions')).toBe(401)
  expect(await statusOf('http://public.example/bank/transactions')).toBe(401)
  expect(await statusOf(`http://${HOST}/transactions`)).toBe(401)
})
