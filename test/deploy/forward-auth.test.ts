import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { writeFileSync } from 'node:fs'
import { request as httpsRequest } from 'node:https'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { ASKING, PLAIN, startAsking } from '../helpers/asking-proxies.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { makeKey, signProof, thumbprintOf } from '../helpers/issuer.ts'
import { mostInAWindow, type Observed, wronglyAdmitted, wronglyRefused } from '../helpers/judge.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'

const CONNECTION = '1ffe1a3f-0b2f-4a3e-9d7a-6d3b8f6f1c11'
const STATUSES = [402, 413, 431, 503]
const key = makeKey('ES256')
const apiKey = createKeyText()
const keys = join(createFolder(), 'keys.yaml')
writeFileSync(keys, `- { id: keyed, sha256: "${hashOfKey(apiKey)}" }\n`)

/** Returns the status of a request over TLS. */
async function statusOverTls(port: number, path: string, token: string): Promise<number | undefined> {
  const headers = { Authorization: `Bearer ${token}` }
  const request = httpsRequest({ port, path, headers, rejectUnauthorized: false, servername: 'localhost' })
  const [response] = (await once(request.end(), 'response')) as [IncomingMessage]
  response.resume()
  return response.statusCode
}

it('nginx.conf with the lines for browsers answers preflights, and lets pages read responses and refusals', async () => {
  const data = await startUpstream((_, response) => {
    response.writeHead(200, { 'Access-Control-Allow-Origin': 'https://old.example.com' }).end('{}')
  })
  const gateway = await startGateway({
    data: 'http://unused.internal',
    listen: PLAIN,
    routes: [{ match: '/v3/*', authenticate: 'bearer', limits: ['requests'] }],
    limits: { requests: { per: ['client'], limit: 1, window: '1m' } },
    more: { forwardAuth: { port: 0, from: 'nginx' } },
  })
  const proxy = await startAsking('nginx', [gateway], data.port, { on: ['browsers'] })
  const Origin = 'https://app.example.com'
  const asked = { 'Access-Control-Request-Method': 'PUT', 'Access-Control-Request-Headers': 'authorization' }
  const preflight = (origin: string) =>
    call(proxy.port, { method: 'OPTIONS', path: '/v3/a', headers: { Origin: origin, ...asked } })
  const answer = await preflight(Origin)
  expect([answer.status, data.seen.length]).toEqual([204, 0])
  expect(answer.headers).toMatchObject({
    'access-control-allow-origin': Origin,
    'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
    'access-control-allow-headers': 'authorization',
    vary: 'Origin',
  })
  expect((await preflight('https://evil.example')).headers).not.toHaveProperty('access-control-allow-origin')

  const ann = await token('ann')
  const responses = [
    await call(proxy.port, { path: '/v3/a', headers: { Origin }, token: ann }),
    await call(proxy.port, { path: '/v3/a', headers: { Origin }, token: ann }),
    await call(proxy.port, { path: '/v3/a', headers: { Origin } }),
    await call(proxy.port, { path: '/v4/a', headers: { Origin } }),
  ]
  expect(responses.map(({ status }) => status)).toEqual([200, 429, 401, 404])
  for (const { headers } of responses) {
    expect(headers['access-control-allow-origin']).toBe(Origin)
    expect(headers['access-control-expose-headers']).toContain('Retry-After')
    expect(headers.vary).toBe('Origin')
    expect(headers).not.toHaveProperty('access-control-allow-methods')
  }
})

describe.each(Object.keys(ASKING) as (keyof typeof ASKING)[])(
  '%s that asks by deploy/forward-auth',
  (from) => {
    let data: TestUpstream
    let gateway: TestGateway
    let proxy: Awaited<ReturnType<typeof startAsking>>
    const start = async (limit: number, window: string) => {
      gateway = await startGateway({
        data: 'http://unused.internal',
        listen: { ...PLAIN, hosts: ['api.example.com', '127.0.0.1'] },
        limit,
        window,
        syncWindow: '1m',
        routes: [
          { match: 'POST /v3/sync/:connection', authenticate: 'bearer', limits: ['requests', 'sync'] },
          { match: 'GET /open/*', authenticate: 'none' },
          { match: 'GET /scoped/*', authenticate: 'bearer', scope: ['read'] },
          { match: 'GET /keyed/*', authenticate: 'key', limits: ['requests'] },
          ...STATUSES.map((status) => ({
            match: `GET /refused/${status}`,
            authenticate: 'none',
            limits: [`refused${status}`],
          })),
          { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
        ],
        more: { forwardAuth: { port: 0, from }, parameters: { connection: 'uuid' }, keys: { file: keys } },
        limits: {
          ...Object.fromEntries(
            STATUSES.map((status) => [
              `refused${status}`,
              { per: ['ip'], limit: 1, window: '1m', refusal: { status } },
            ]),
          ),
          requests: { per: ['client'], limit, window },
          sync: {
            per: ['client', 'connection'],
            limit: 1,
            window: '1m',
            refusal: { status: 429, headers: { 'X-Why': 'sync' }, body: { größe: 'zu "viel"' } },
          },
        },
      })
      proxy = await startAsking(from, [gateway], data.port)
    }
    beforeAll(async () => {
      data = await startUpstream()
      await start(5, '1m')
    })
    const reached = () => data.seen.length

    it('forwards what may pass, with its body, the client and the limit', async () => {
      const got = await call(proxy.port, {
        method: 'POST',
        path: '/v3/a%3Ab?x=1&y=//z',
        token: await token('ann'),
        headers: { 'X-Sluice-Client': 'mallory', 'X-RateLimit-Limit': '9' },
        body: 'a body',
      })
      expect([got.status, got.body]).toEqual([200, '{"data":[]}'])
      expect(got.headers).toMatchObject({ 'x-ratelimit-limit': '5', 'x-ratelimit-remaining': '4' })
      expect(Date.parse(String(got.headers['x-ratelimit-reset']))).toBeGreaterThan(Date.now())
      const { method, url, headers, body } = data.seen.at(-1)!
      expect([method, url, body.toString()]).toEqual(['POST', '/v3/a%3Ab?x=1&y=//z', 'a body'])
      expect(headers['x-sluice-client']).toBe('ann')
      expect(headers['x-request-id']).toMatch(/./)
      expect(got.headers['x-request-id']).toBe(headers['x-request-id'])
    })

    it('forwards the client of an API key without the key, and challenges without one', async () => {
      const send = (headers: Record<string, string>) => call(proxy.port, { path: '/keyed/a', headers })
      const before = reached()
      for (const refused of [await send({}), await send({ 'X-Api-Key': 'wrong' })]) {
        expect(refused.status).toBe(401)
        expect(refused.headers['www-authenticate']).toBe('ApiKey')
      }
      expect(reached()).toBe(before)
      expect((await send({ 'X-API-KEY': apiKey, 'X-Sluice-Client': 'mallory' })).status).toBe(200)
      expect(data.seen.at(-1)!.headers['x-sluice-client']).toBe('keyed')
      expect(JSON.stringify(data.seen.at(-1)!.rawHeaders)).not.toContain(apiKey)
    })

    it('answers the refusal of the gateway, whose status, fields and body stay', async () => {
      const sync = async () =>
        call(proxy.port, {
          method: 'POST',
          path: `/v3/sync/${CONNECTION}`,
          token: await token('bob'),
          body: 'x',
        })
      expect((await sync()).status).toBe(200)
      const before = reached()
      const refused = await sync()
      expect(refused.status).toBe(429)
      expect(refused.json).toEqual({ größe: 'zu "viel"' })
      expect(refused.headers).toMatchObject({
        'content-type': 'application/json',
        'x-ratelimit-limit': '1',
        'x-ratelimit-remaining': '0',
        'cache-control': 'no-store',
      })
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
      expect(refused.headers['x-request-id']).toMatch(/./)
      expect(reached()).toBe(before)
    })

    it('refuses credentials without TLS, alike for a valid and an invalid token', async () => {
      const asked = await startGateway({
        data: 'http://unused.internal',
        routes: [{ match: '/v3/*', authenticate: 'bearer', limits: ['requests'] }],
        more: { forwardAuth: { port: 0, from } },
      })
      const plain = await startAsking(from, [asked], data.port)
      const before = reached()
      for (const credentials of [await token('ann'), 'forged']) {
        const got = await call(plain.port, { path: '/v3/a', token: credentials })
        expect([got.status, got.body]).toEqual([403, expect.stringContaining('over HTTPS only')])
      }
      expect((await call(plain.port, { path: '/v3/a' })).status).toBe(401)
      const secure = await startAsking(from, [asked], data.port, { tls: true })
      expect(await statusOverTls(secure.port, '/v3/a', await token('ann'))).toBe(200)
      expect(reached()).toBe(before + 1)
    })

    it('answers 403 with the challenge of the gateway', async () => {
      const got = await call(proxy.port, { path: '/scoped/a', token: await token('ann') })
      expect(got.status).toBe(403)
      expect(got.headers['www-authenticate']).toContain('error="insufficient_scope"')
    })

    it.each(STATUSES)('answers a limit that refuses with %i', async (status) => {
      const statusOf = async () => (await call(proxy.port, { path: `/refused/${status}` })).status
      expect([await statusOf(), await statusOf()]).toEqual([200, status])
    })

    it.each([
      ['no token', 401, { path: '/v3/a' }],
      ['an unknown path', 404, { path: '/v4/a' }],
      ['an ambiguous path', 400, { path: '/v3%2Fa' }],
      ['another method', 405, { path: '/open/a', method: 'POST' }],
    ])('answers %s with %i and the error of the gateway', async (_, status, request) => {
      const before = reached()
      const got = await call(proxy.port, request)
      expect([got.status, got.headers['content-type']]).toEqual([status, 'application/problem+json'])
      expect(got.json).toMatchObject({ status, correlationId: got.headers['x-request-id'] })
      const challenges =
        status === 401 ? expect.stringMatching(/^Bearer .*, DPoP [^,]*, algs="[^"]*"$/) : undefined
      expect(got.headers['www-authenticate']).toEqual(challenges)
      if (status === 405) expect(got.headers.allow).toBe('GET, HEAD')
      expect(reached()).toBe(before)
    })

    it('forwards an open path without a client or a limit, and drops what the caller claims', async () => {
      const headers = { 'X-Sluice-Client': 'mallory', 'X-Forwarded-Uri': '/v3/a', 'X-Original-URI': '/v3/a' }
      const got = await call(proxy.port, { path: '/open/a', headers })
      expect(got.status).toBe(200)
      expect(got.headers).not.toHaveProperty('x-ratelimit-limit')
      expect(data.seen.at(-1)!.headers['x-sluice-client'] ?? '').toBe('')
      const forged = await call(proxy.port, {
        path: '/v3/a',
        headers: {
          ...headers,
          'X-Forwarded-Uri': '/open/a',
          'X-Original-URI': '/open/a',
          'X-Forwarded-Method': 'GET',
          'X-Original-Method': 'GET',
        },
      })
      expect(forged.status).toBe(401)
    })

    it('accepts a DPoP proof for the URL of the caller, once', async () => {
      const bound = await token('carl', { cnf: { jkt: thumbprintOf(key) } })
      const host = 'api.example.com'
      const send = (proof: string) =>
        call(proxy.port, {
          path: '/v3/a',
          headers: { Host: host, Authorization: `DPoP ${bound}`, DPoP: proof },
        })
      const sign = (url: string) => signProof({ key, token: bound, url })
      const proof = sign(`http://${host}/v3/a`)
      expect((await send(proof)).status).toBe(200)
      expect((await send(proof)).status).toBe(401)
      expect((await send(sign(`http://127.0.0.1:${gateway.askPort}/`))).status).toBe(401)
    })

    it('lets exactly the limit of concurrent calls pass', async () => {
      const before = reached()
      const bearer = await token('fred')
      const calls = Array.from({ length: 60 }, () => call(proxy.port, { path: '/v3/a', token: bearer }))
      const got = await Promise.all(calls)
      const passed = got.filter(({ status }) => status === 200)
      // Each that passed was charged here, as another: a call too many would show which.
      const remaining = passed.map(({ headers }) => headers['x-ratelimit-remaining'])
      expect(remaining.toSorted((a, b) => Number(a) - Number(b))).toEqual(['0', '1', '2', '3', '4'])
      expect(got.filter(({ status }) => status === 429).length).toBe(55)
      expect(reached()).toBe(before + 5)
    })

    it('refuses while the gateway is down', async () => {
      await gateway.close()
      const before = reached()
      const got = await call(proxy.port, { path: '/open/a' })
      expect(got.status).toBeGreaterThanOrEqual(500)
      expect(reached()).toBe(before)
      proxy.close()
    })

    it('keeps the limit exactly in any window', async () => {
      await start(7, '500ms')
      const bearer = await token('dora')
      const calls: Observed[] = []
      const until = performance.now() + 1500
      while (performance.now() < until)
        await Promise.all(
          Array.from({ length: 1 + Math.floor(Math.random() * 6) }, async () => {
            const id = crypto.randomUUID()
            const sentAt = performance.now()
            const got = await call(proxy.port, { path: `/v3/${id}`, token: bearer })
            const seen = data.seen.find(({ url }) => url === `/v3/${id}`)
            calls.push({ sentAt, answeredAt: seen?.at ?? performance.now(), admitted: got.status === 200 })
          }),
        )
      expect(calls.filter(({ admitted }) => admitted).length).toBeGreaterThan(7)
      expect(wronglyAdmitted(calls, 7, 500)).toEqual([])
      expect(wronglyRefused(calls, 7, 500)).toEqual([])
      expect(mostInAWindow(calls, 500)).toBeLessThanOrEqual(7)
    })
  },
)
