import { startAdmin } from '../helpers/admin.ts'
import { request as httpRequest } from 'node:http'
import { beforeAll, describe, expect, it } from 'vitest'
import { InvalidQuestion, UncountedCaller } from '../../src/errors.ts'
import { parseCaller, showCaller } from '../../src/policy/counted-caller.ts'
import { call, ROUTES, startGateway, type TestGateway, token, READS_LIMITS } from '../helpers/gateway.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TOKEN = 'an-operator-s-token'
const AUTHORIZED = { Authorization: `Bearer ${TOKEN}` }
describe('/limits/:caller', () => {
  it('reads and resets a client with any id, and any other caller', async () => {
    const { ask, asked } = await startAdmin()
    for (const [path, caller, whole] of [
      ['acme', 'client:acme'],
      ['client%3Aacme', 'client:acme'],
      ['a%2Fb%20c', 'client:a/b c'],
      ['%C3%A4?x=1', 'client:ä'],
      ['..', 'client:..'],
      ['ip%3A192.0.2.7', 'ip:192.0.2.7'],
      ['client%3Aacme%20user%3Ajo', 'client:acme user:jo'],
      ['header%3AX-Api-Key%3DABC123', 'header:x-api-key=abc1…6ca13d52', 'header:x-api-key=abc123'],
      [
        'header%3Ax-api-key%3Dabc1%E2%80%A65f2c9e1a',
        'header:x-api-key=abc1…6ca13d52',
        'header:x-api-key=abc123',
      ],
    ] as const) {
      const read = await ask(`/limits/${path}`)
      expect(read).toMatchObject({ status: 200, json: { caller, limits: [], truncated: false } })
      expect(read.headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' })
      expect((await ask(`/limits/${path}`, { method: 'DELETE' })).json).toEqual({
        caller,
        freed: 2,
        by: 'loopback',
      })
      expect(asked.splice(0)).toEqual([whole ?? caller, whole ?? caller])
    }
    expect(await ask('/limits/acme', { method: 'HEAD' })).toMatchObject({ status: 200, body: '' })
  })

  it.for([
    ['GET', '/limits', 404],
    ['GET', '/limits/', 404],
    ['GET', '/limits/a/b', 404],
    ['GET', '/limits/%', 400],
    ['GET', '/limits/%FF', 400],
    ['GET', '/limits/client%3A', 400],
    ['GET', '/limits/ip%3Ax', 400],
    ['GET', '/limits/token%3Ax', 400],
    ['GET', '/limits/header%3Ax-api-key%3Dnone%E2%80%A600000000', 404],
    ['POST', '/limits/a', 405],
    ['PUT', '/limits/a', 405],
  ] as const)('answers %s %s with %i in JSON', async ([method, path, status]) => {
    const { ask, asked } = await startAdmin()
    const got = await ask(path, { method })
    expect(got).toMatchObject({ status, json: { type: 'about:blank', status } })
    expect(got.headers['content-type']).toBe('application/problem+json')
    if (status === 405) expect(got.headers['allow']).toBe('GET, HEAD, DELETE, PATCH')
    expect(asked).toEqual([])
  })

  it('answers 404 to a caller that no limit counts by, and counts no failure', async () => {
    const refuse = () => Promise.reject(new UncountedCaller('No limit counts it.'))
    const { ask, failed } = await startAdmin({
      operator: { usage: refuse, reset: refuse, setLimits: refuse },
    })
    const change = { headers: { 'Content-Type': 'application/json' }, body: '{"set":{"requests":1}}' }
    for (const more of [{}, { method: 'DELETE' }, { method: 'PATCH', ...change }])
      expect(await ask('/limits/user:a', more)).toMatchObject({
        ...{ status: 404, json: { detail: 'No limit counts it.' } },
      })
    expect(failed).not.toHaveBeenCalled()
  })

  it('answers 409 to a short form that several callers have, and counts no failure', async () => {
    const { ask, asked, failed } = await startAdmin({ operator: { findCaller: () => 'ambiguous' } })
    for (const method of ['GET', 'DELETE', 'PATCH'])
      expect(await ask('/limits/header:x-api-key=abc1%E2%80%A65f2c9e1a', { method })).toMatchObject({
        status: 409,
        json: {
          detail: 'Several callers are shown as "header:x-api-key=abc1…5f2c9e1a"; give the whole value.',
        },
      })
    expect(asked).toEqual([])
    expect(failed).not.toHaveBeenCalled()
  })

  it('takes no caller for the one that is meant if a whole value differs', async () => {
    const { ask, asked } = await startAdmin({
      operator: { findCaller: () => parseCaller('header:x-api-key=abc123 header:x-device=one') },
    })
    const asks = (device: string) =>
      ask(`/limits/header:x-api-key=abc1%E2%80%A66ca13d52%20header:x-device=${device}`)
    expect((await asks('one')).status).toBe(200)
    expect((await asks('two')).status).toBe(404)
    expect(asked).toEqual(['header:x-api-key=abc123 header:x-device=one'])
  })

  it('answers 503 if the store does not answer, and logs the reason', async () => {
    const cause = new Error('Redis is not connected: secret details')
    const { ask, failed } = await startAdmin({
      operator: { usage: () => Promise.reject(cause), reset: () => Promise.reject(cause) },
    })
    for (const method of ['GET', 'DELETE']) {
      const got = await ask('/limits/a', { method })
      expect(got).toMatchObject({ status: 503, json: { detail: 'The counters are unavailable.' } })
      expect(got.headers['retry-after']).toBe('1')
    }
    expect(failed.mock.calls).toEqual([[cause], [cause]])
  })
})

describe('PATCH /limits/:caller', () => {
  const patch = async (body: string | object, headers: Record<string, string> = {}, caller = 'acme') => {
    const { ask } = await startAdmin({
      operator: {
        setLimits: async ({ caller, ...setting }) => ({ ...setting, caller: showCaller(caller), limits: [] }),
      },
    })
    return await ask(`/limits/${caller}`, {
      method: 'PATCH',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      headers: { 'Content-Type': 'application/json; charset=utf-8', ...headers },
    })
  }

  it('sets and removes overrides, for a day unless an end is given', async () => {
    const before = Date.now()
    const day = await patch({ set: { requests: 5, sync: null } }, {}, 'a%2Fb')
    expect(day).toMatchObject({
      status: 200,
      json: { caller: 'client:a/b', set: { requests: 5, sync: null } },
    })
    expect(day.json.untilAt - before).toBeGreaterThanOrEqual(86_400_000)
    expect(day.json.untilAt - Date.now()).toBeLessThanOrEqual(86_400_000)
    const sent = { by: 'jo@desk', note: 'leaked' }
    // The operator is the recognised one; what the request says about itself is a remark.
    const rest = { by: 'loopback', note: 'leaked (sent as jo@desk)', limits: [] }
    expect((await patch({ set: { requests: 0 }, until: null, ...sent })).json).toEqual({
      ...{ caller: 'client:acme', set: { requests: 0 }, untilAt: null, ...rest },
    })
    const until = '2100-01-01T00:00:00+01:00'
    expect((await patch({ set: { requests: 0 }, until })).json.untilAt).toBe(Date.parse(until))
  })

  const SET = { set: { requests: 1 } }
  it.for([
    ['', 'Send a JSON object'],
    ['[]', 'Send a JSON object'],
    ['{"set":', 'Send a JSON object'],
    [{}, '"set" must name a limit'],
    [{ set: [] }, '"set" must name a limit'],
    [{ set: {} }, '"set" must name a limit'],
    ...[-1, 1.5, '5', true, 2 ** 53].map((limit) => [
      { set: { requests: limit } },
      '"requests" must be a whole number, 0 or more, or null',
    ]),
    [{ ...SET, unti: null }, '"unti" is not a member; use set, until, by and note.'],
    ...['2h', '2100-01-01', 5, '2100-02-30T00:00:00Z'].map((until) => [
      { ...SET, until },
      '"until" must be an instant',
    ]),
    [{ ...SET, until: '2020-01-01T00:00:00Z' }, '"until" has passed'],
    [{ ...SET, by: '' }, '"by" must have 1 to 100 characters'],
    [{ ...SET, note: 'a\nb' }, '"note" must have 1 to 500 characters, without control characters.'],
    [{ ...SET, note: '\ud800' }, '"note" must have 1 to 500 characters, without control characters.'],
    [{ ...SET, note: 'x'.repeat(70_000) }, 'The body is over 64 KiB.'],
  ] as [string | object, string][])('answers 400 to %j', async ([body, detail]) => {
    expect(await patch(body)).toMatchObject({
      ...{ status: 400, json: { type: 'about:blank', detail: expect.stringContaining(detail) as string } },
    })
  })

  it('answers 400 to another content type, and to an invalid caller', async () => {
    expect((await patch(SET, { 'Content-Type': 'text/plain' })).json.detail).toBe(
      'Send the settings as Content-Type: application/json.',
    )
    expect((await patch(SET, {}, 'a%0Ab')).status).toBe(400)
    expect((await patch(SET, {}, 'x'.repeat(1025))).status).toBe(400)
  })
})

describe('/overrides and /explain', () => {
  it('answer valid parameters, and 400 to invalid ones', async () => {
    const { ask } = await startAdmin({
      operator: {
        async explain(line) {
          if (line.request === '') throw new InvalidQuestion('Which request?')
          return line
        },
      },
      hash: () => 'f00',
    })
    expect((await ask('/overrides')).json).toEqual({ overrides: [{ caller: 'client:acme' }] })
    expect((await ask('/explain?request=POST%20/v3/sync/a+b&client=a%26b')).json).toEqual({
      ...{ request: 'POST /v3/sync/a b', client: 'a&b', configuration: 'f00' },
    })
    expect(await ask('/explain')).toMatchObject({ status: 400, json: { detail: 'Which request?' } })
    for (const query of ['request=/x&nope=1', 'request=/x&request=/y'])
      expect((await ask(`/explain?${query}`)).json.detail).toMatch(/^The parameters are request, host, /)
    for (const path of ['/overrides', '/explain?request=/x'])
      expect((await ask(path, { method: 'POST' })).status).toBe(405)
  })
})

describe('access to limits', () => {
  it.for([
    ['no token', {}, 401, 'Bearer realm="sluice"'],
    ['another scheme', { Authorization: `Basic ${TOKEN}` }, 401, 'Bearer realm="sluice"'],
    ['another token', { Authorization: 'Bearer x' }, 401, 'Bearer realm="sluice", error="invalid_token"'],
    [
      'a longer token',
      { Authorization: `Bearer ${TOKEN}x` },
      401,
      'Bearer realm="sluice", error="invalid_token"',
    ],
    ['the token', { Authorization: `Bearer ${TOKEN}` }, 200, undefined],
    ['the token, its scheme in lower case', { Authorization: `bearer  ${TOKEN}` }, 200, undefined],
    ['the token at a name of admin.hosts', { ...AUTHORIZED, Host: 'Sluice.internal:9090' }, 200, undefined],
    ['the token at an address', { ...AUTHORIZED, Host: '[2001:db8::1]:9090' }, 200, undefined],
    ['the token at localhost', { ...AUTHORIZED, Host: 'localhost' }, 200, undefined],
    [
      'the token at another name (DNS rebinding)',
      { ...AUTHORIZED, Host: 'evil.example:9090' },
      403,
      undefined,
    ],
  ] as const)('access to limits with a token configured: %s', async ([, headers, status, challenge]) => {
    for (const onLoopback of [true, false]) {
      const { ask, asked } = await startAdmin({ token: TOKEN, onLoopback, hosts: ['sluice.internal'] })
      const got = await ask('/limits/a', { headers })
      expect(got.status).toBe(status)
      expect(got.headers['www-authenticate']).toBe(challenge)
      expect(asked).toHaveLength(status === 200 ? 1 : 0)
      for (const path of ['/overrides', '/explain?request=/x', '/overview'])
        expect((await ask(path, { headers })).status).toBe(status)
      expect((await ask('/limits/a', { headers, method: 'PATCH' })).status).toBe(
        status === 200 ? 400 : status,
      )
    }
  })

  it('access to limits is denied if the listener is not on loopback and has no token', async () => {
    const { ask, asked } = await startAdmin({ onLoopback: false })
    const got = await ask('/limits/a', { method: 'DELETE' })
    expect(got).toMatchObject({ status: 403, json: { title: 'Forbidden' } })
    expect(got.json.detail).toContain('admin.token')
    expect(asked).toEqual([])
    for (const path of ['/healthz', '/readyz', '/metrics']) expect((await ask(path)).status).toBe(200)
  })

  it.for([
    ['localhost', 200],
    ['LOCALHOST:9090', 200],
    ['127.0.0.1:1', 200],
    ['127.9.9.9', 200],
    ['[::1]:9090', 200],
    ['evil.example', 403],
    ['127.0.0.1.evil.example', 403],
    ['localhost.evil.example:9090', 403],
    ['10.0.0.1', 403],
    ['[::2]', 403],
  ] as const)(
    'access to limits on loopback without a token, at the name "%s": %i',
    async ([host, status]) => {
      const { ask } = await startAdmin()
      expect((await ask('/limits/a', { headers: { Host: host } })).status).toBe(status)
      expect((await ask('/healthz', { headers: { Host: host } })).status).toBe(200)
    },
  )

  it.each([
    ['cross-site', 403],
    ['same-site', 403],
    ['same-origin', 200],
    ['none', 200],
  ])('depends on Sec-Fetch-Site: %s', async (site, status) => {
    for (const Authorization of [undefined, `Bearer ${TOKEN}`]) {
      const { ask } = await startAdmin({ token: Authorization && TOKEN })
      const headers = { 'Sec-Fetch-Site': site, ...(Authorization && { Authorization }) }
      for (const path of ['/limits/a', '/metrics']) expect((await ask(path, { headers })).status).toBe(status)
    }
  })

  it('access to limits without a token is denied to requests that a proxy has forwarded', async () => {
    for (const field of ['X-Forwarded-For', 'Forwarded', 'Via']) {
      const headers = { [field]: 'for=192.0.2.7' }
      const { ask } = await startAdmin()
      const got = await ask('/limits/a', { headers })
      expect([got.status, got.json.detail]).toEqual([
        403,
        'Without admin.token, send requests directly: a proxy has forwarded this one.',
      ])
      expect((await ask('/metrics', { headers })).status).toBe(200)
      const withToken = await startAdmin({ token: TOKEN })
      expect((await withToken.ask('/limits/a', { headers: { ...headers, ...AUTHORIZED } })).status).toBe(200)
    }
  })

  it('access to limits is denied to other origins', async () => {
    const { ask, asked } = await startAdmin()
    for (const origin of ['https://evil.example', 'null', 'http://localhost:9090']) {
      const got = await ask('/limits/a', { method: 'DELETE', headers: { Origin: origin } })
      expect(got.status).toBe(403)
      expect(got.headers['access-control-allow-origin']).toBeUndefined()
    }
    expect((await ask('/limits/a', { method: 'OPTIONS', headers: { Origin: 'null' } })).status).toBe(403)
    expect(asked).toEqual([])
  })
})

describe('a gateway that counts in Redis', () => {
  let redis: RedisServer
  let upstream: TestUpstream
  let gateway: TestGateway
  beforeAll(async () => {
    redis = await startRedis()
    upstream = await startUpstream()
    gateway = await startGateway({
      data: upstream.url,
      store: { redis: { url: redis.url }, onOutage: 'deny', timeout: '500ms' },
      routes: [READS_LIMITS, ...ROUTES],
      limit: 3,
      more: { clients: [{ id: 'acme', limits: { requests: { limit: 2, until: '2100-01-01T00:00:00Z' } } }] },
    })
  })

  it('answers the caller and the operator alike, resets the client at once, and refuses neither', async () => {
    const acme = await token('acme')
    const calls = async (times: number) => {
      const got = []
      for (let i = 0; i < times; i++) got.push((await call(gateway.port, { token: acme })).status)
      return got
    }
    expect(await calls(3)).toEqual([200, 200, 429])
    const own = await call(gateway.port, { path: '/v3/rate-limits', token: acme })
    expect(own).toMatchObject({
      status: 200,
      json: { limits: [{ name: 'requests', limit: 2, remaining: 0 }] },
    })
    expect(own.headers).toMatchObject({ 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '0' })
    const seen = await call(gateway.adminPort, { path: '/limits/acme' })
    expect(seen.json).toMatchObject({
      caller: 'client:acme',
      limits: [{ ...own.json.limits[0], key: 'sluice:{acme}:requests', until: '2100-01-01T00:00:00.000Z' }],
    })
    const freed = await call(gateway.adminPort, { path: '/limits/acme', method: 'DELETE' })
    expect(freed).toMatchObject({ status: 200, json: { caller: 'client:acme', freed: 1 } })
    expect(await calls(3)).toEqual([200, 200, 429])
  })

  /** Returns how many times Redis has run a command. */
  async function asked(command: string): Promise<number> {
    const stats = String(await redis.command('INFO', 'commandstats'))
    return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0)
  }

  it('answers a caller from memory for a second, which costs Redis nothing', async () => {
    const poller = await token('poller')
    const before = await asked('evalsha')
    const startedAt = performance.now()
    const read = async () => (await call(gateway.port, { path: '/v3/rate-limits', token: poller })).json
    const answers = [await read(), ...(await Promise.all(Array.from({ length: 200 }, read)))]
    for (const answer of answers) expect(answer).toMatchObject({ limits: [{ remaining: 3 }] })
    const seconds = 1 + Math.floor((performance.now() - startedAt) / 1000)
    // The presence of each process takes as many calls.
    expect((await asked('evalsha')) - before).toBeLessThanOrEqual(2 * seconds + 1)
    expect((await call(gateway.port, { token: poller })).status).toBe(200)
    await until('the call is counted', async () => (await read()).limits[0].remaining === 2)
  })

  it('scans for one operator at a time, and not for disconnected ones', async () => {
    const FILL = `for i = 1, 200000 do redis.call('SET', 'sluice:{filler}:sync:' .. i, '') end`
    await redis.command('EVAL', FILL, 0)
    const seeker = await token('seeker')
    // Redis may have been busy for long enough to count as down.
    await until('the call is counted', async () => {
      const { status } = await call(gateway.port, { method: 'POST', path: '/sync/abc', token: seeker })
      return status === 200
    })
    const { json } = await call(gateway.adminPort, { path: '/limits/seeker' })
    expect(json.limits.map(({ key }: { key: string }) => key)).toContain('sluice:{seeker}:sync:abc')
    const whole = await asked('scan')
    expect(whole).toBeGreaterThanOrEqual(200)

    const leaving = Array.from({ length: 20 }, () =>
      httpRequest({ port: gateway.adminPort, path: '/limits/seeker', agent: false }).on('error', () => {}),
    )
    for (const request of leaving) request.end()
    await until('one scans', async () => (await asked('scan')) > whole)
    for (const request of leaving) request.destroy()
    await until('all have ended', async () => {
      const before = await asked('scan')
      await call(gateway.adminPort, { path: '/limits/none', method: 'OPTIONS' })
      await new Promise((resolve) => setTimeout(resolve, 50))
      return (await asked('scan')) === before
    })
    expect(await asked('scan')).toBeLessThan(3 * whole)

    const freed = await call(gateway.adminPort, { path: '/limits/seeker', method: 'DELETE' })
    expect(freed.json.freed).toBeGreaterThanOrEqual(1)
    expect(await redis.command('EXISTS', 'sluice:{seeker}:sync:abc')).toBe(0)
  })

  it('answers 503 to a caller and a reset while Redis is down, with what it does itself to the operator, and succeeds again after', async () => {
    const acme = await token('acme')
    await until('a refusal', async () => (await call(gateway.port, { token: acme })).status === 429)
    const usedMost = async () => {
      const { activity } = (await call(gateway.adminPort, { path: '/overview' })).json
      return activity.callers.find(({ client }: { client: string }) => client === 'acme')?.most
    }
    await until('its limit is shown', async () => (await usedMost())?.name === 'requests')
    await redis.kill()
    const shown = async () => (await call(gateway.adminPort, { path: '/limits/acme' })).json.limits
    await until('the fallback', async () => (await shown())[0].mode === 'deny')
    expect(await shown()).toMatchObject([{ name: 'requests', mode: 'deny', limit: 2, part: null }])
    expect((await call(gateway.adminPort, { path: '/limits/acme', method: 'DELETE' })).status).toBe(503)
    // A reset that failed leaves what is known of the caller.
    expect(await usedMost()).toMatchObject({ name: 'requests' })
    expect((await call(gateway.port, { path: '/v3/rate-limits', token: acme })).status).toBe(503)
    await redis.start()
    await until('an answer', async () => {
      return (await shown())[0].mode === 'store'
    })
    await until('an answer for the caller', async () => {
      return (await call(gateway.port, { path: '/v3/rate-limits', token: acme })).status === 200
    })
  })
})
