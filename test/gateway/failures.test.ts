import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createFailures } from '../../src/gateway/failures.ts'
import { SYSTEM_CLOCK } from '../../src/runtime/clock.ts'
import {
  call,
  ROUTES,
  startGateway,
  type Settings,
  type TestGateway,
  token,
  TOKENS,
} from '../helpers/gateway.ts'
import { makeKey } from '../helpers/issuer.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

describe('counts failures', () => {
  const counted = () => {
    const clock = { ms: 0 }
    const events = { counted: 0, refused: 0 }
    const failures = createFailures(
      {
        failures: { inc: () => void events.counted++ },
        failuresRefused: { inc: () => void events.refused++ },
      },
      { ...SYSTEM_CLOCK, now: () => clock.ms },
    )
    return {
      clock,
      events,
      failures: failures({ limit: 2, windowMs: 1000 }),
      lowered: failures({ limit: 1, windowMs: 1000 }),
    }
  }

  it('refuses an address with too many failures in any window, until the oldest leaves the window', () => {
    const { clock, failures, events } = counted()
    failures.count('192.0.2.1')
    clock.ms = 900
    failures.count('192.0.2.1')
    expect(failures.refusal('192.0.2.1')).toMatchObject({ status: 429, headers: { 'Retry-After': '1' } })
    clock.ms = 999
    expect(failures.refusal('192.0.2.1')).toBeDefined()
    clock.ms = 1000
    expect(failures.refusal('192.0.2.1')).toBeUndefined()
    failures.count('192.0.2.1')
    expect(failures.refusal('192.0.2.1')).toBeDefined()
    expect(failures.count('192.0.2.1')).toBeDefined()
    expect(events).toEqual({ counted: 3, refused: 4 })
  })

  it('counts each address separately, IPv6 by its /64', () => {
    const { failures } = counted()
    failures.count('2001:db8::1')
    failures.count('2001:db8::2')
    expect(failures.refusal('2001:db8::3')).toBeDefined()
    expect(failures.refusal('2001:db8:0:1::1')).toBeUndefined()
    expect(failures.refusal('192.0.2.1')).toBeUndefined()
  })

  it('keeps at most `limit` failures of an address, and applies the current limit to them', () => {
    const { clock, failures, lowered } = counted()
    failures.count('192.0.2.1')
    expect(lowered.refusal('192.0.2.1')).toBeDefined()
    for (let i = 0; i < 100; i++) failures.count('192.0.2.1')
    clock.ms = 1000
    expect(failures.refusal('192.0.2.1')).toBeUndefined()
  })

  it('evicts the address that failed longest ago if there are too many', () => {
    const { lowered } = counted()
    const address = (i: number) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`
    for (let i = 0; i <= 10_000; i++) lowered.count(address(i))
    expect(lowered.refusal(address(0))).toBeUndefined()
    expect(lowered.refusal(address(1))).toBeDefined()
  })
})

describe('the gateway', () => {
  let upstream: TestUpstream
  let gateway: TestGateway
  const start = async (settings: Partial<Settings> = {}) => {
    upstream = await startUpstream()
    gateway = await startGateway({
      data: upstream.url,
      trustedProxies: '[127.0.0.1/32]',
      more: 'failures: { limit: 3, window: 1h }',
      ...settings,
    })
  }
  const from = (ip: string, more: Parameters<typeof call>[1] = {}) =>
    call(gateway.port, { ...more, headers: { 'X-Forwarded-For': ip } })

  it('refuses an address with too many failed authentications with a 429, before verifying its token', async () => {
    await start()
    const bad = `${(await token('someone')).slice(0, -9)}AAAAAAAAA`
    for (let i = 0; i < 3; i++) expect((await from('192.0.2.1', { token: bad })).status).toBe(401)
    const refused = await from('192.0.2.1', { token: await token('someone') })
    expect(refused.status).toBe(429)
    expect(refused.headers).toMatchObject({
      'retry-after': '3600',
      'x-ratelimit-limit': '3',
      'x-ratelimit-remaining': '0',
    })
    const inMs = Date.parse(refused.headers['x-ratelimit-reset'] as string) - Date.now()
    expect(inMs).toBeGreaterThan(3_500_000)
    expect(inMs).toBeLessThanOrEqual(3_600_000)
    expect(refused.json).toMatchObject({
      type: 'https://iana.org/assignments/http-problem-types#abnormal-usage-detected',
      status: 429,
      code: 'TooManyRequests',
      retryAfterSecs: 3600,
    })
    expect(upstream.seen).toHaveLength(0)
    expect((await from('192.0.2.2', { token: await token('someone') })).status).toBe(200)
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    expect(body).toMatch(/^sluice_failures_total 3$/m)
    expect(body).toMatch(/^sluice_failures_refused_total 1$/m)
  })

  it('sends an address at most `limit` 401s, also if more requests waited for the keys', async () => {
    const waiting: (() => void)[] = []
    const others = JSON.stringify({ keys: [makeKey('ES256').jwk] })
    const keys = await startUpstream((_, response) => waiting.push(() => response.end(others)))
    await start({ tokens: TOKENS.replace(/jwks: ".*"/, `jwks: "${keys.url}/jwks"`) })
    const bad = await token('someone')
    const asked = Array.from({ length: 10 }, () => from('192.0.2.1', { token: bad }))
    await until('the keys are asked for', () => waiting.length > 0)
    await new Promise((resolve) => setTimeout(resolve, 100))
    for (const answer of waiting) answer()
    const answers = (await Promise.all(asked)).map(({ status }) => status).toSorted((a, b) => a - b)
    expect(answers).toEqual([401, 401, 401, 429, 429, 429, 429, 429, 429, 429])
    await keys.close()
  })

  it('counts and refuses missing credentials, unmatched paths and ambiguous targets', async () => {
    await start()
    expect((await from('192.0.2.1')).status).toBe(401)
    expect((await from('192.0.2.1', { path: '/nothing' })).status).toBe(404)
    expect((await from('192.0.2.1', { path: '/v3/..' })).status).toBe(400)
    for (const path of ['/transactions', '/nothing', '/v3/..']) {
      expect((await from('192.0.2.1', { path })).status).toBe(429)
    }
  })

  it('the gateway does not count 429s of limits, missing scopes or responses of the upstream', async () => {
    await start({
      limit: 2,
      routes: `${ROUTES}  - { match: "/scoped", upstream: data, authenticate: bearer, scope: [rare] }\n`,
    })
    const valid = await token('someone')
    for (let i = 0; i < 5; i++) await from('192.0.2.1', { token: valid })
    for (let i = 0; i < 5; i++) {
      expect((await from('192.0.2.1', { path: '/scoped', token: valid })).status).toBe(403)
    }
    expect((await from('192.0.2.1', { token: await token('another') })).status).toBe(200)
  })

  it('the gateway does not refuse an address on routes without authentication', async () => {
    await start()
    for (let i = 0; i < 4; i++) await from('192.0.2.1')
    expect((await from('192.0.2.1')).status).toBe(429)
    expect((await from('192.0.2.1', { path: '/oidc/auth' })).status).toBe(200)
  })

  it('counts failed client authentications at the PAR endpoint, and refuses with an OAuth error', async () => {
    await start({
      routes: '  - { match: "POST /oidc/request", upstream: identity, authenticate: par }\n'.replace(
        /^/,
        'routes:\n',
      ),
      more: `failures: { limit: 1, window: 1h }
par: { issuer: "https://identity.example.com/oidc" }
clients: [{ id: acme, authentication: private_key_jwt }]`,
    })
    const push = () =>
      call(gateway.port, {
        method: 'POST',
        path: '/oidc/request',
        headers: {
          'X-Forwarded-For': '192.0.2.1',
          'Content-Type': 'application/x-www-form-urlencoded',
          Authorization: `Basic ${Buffer.from('acme:secret').toString('base64')}`,
        },
        body: 'client_id=acme&scope=openid&response_type=code&redirect_uri=https://a.example',
      })
    expect((await push()).status).toBe(401)
    const refused = await push()
    expect(refused.status).toBe(429)
    expect(refused.json).toEqual({
      error: 'temporarily_unavailable',
      error_description: 'Too many requests from this address have failed.',
    })
  })

  it('the gateway does not authenticate a push if its address failed too often while the body arrived', async () => {
    await start({
      routes: ROUTES.replace('authenticate: none }', 'authenticate: par }'),
      more: `failures: { limit: 1, window: 1h }
par: { issuer: "https://identity.example.com/oidc" }`,
    })
    const slow = request({
      port: gateway.port,
      method: 'POST',
      path: '/oidc/request',
      headers: {
        'Content-Type': 'application/x-www-form-urlencoded',
        'X-Forwarded-For': '192.0.2.1',
        Expect: '100-continue',
      },
    })
    const answered = once(slow, 'response') as Promise<[IncomingMessage]>
    slow.flushHeaders()
    await once(slow, 'continue')
    expect((await from('192.0.2.1')).status).toBe(401)
    slow.end('acme')
    const [response] = await answered
    expect(response.resume().statusCode).toBe(429)
  })

  it('counts nothing without `failures` in the configuration', async () => {
    await start({ more: '' })
    for (let i = 0; i < 30; i++) expect((await from('192.0.2.1')).status).toBe(401)
  })
})
