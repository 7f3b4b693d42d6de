import { describe, expect, it } from 'vitest'
import { call, type Got, startGateway, token } from '../helpers/gateway.ts'
import { readsOfCounters, startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

const PUSHED =
  'client_id=acme&scope=openid&response_type=code&redirect_uri=https%3A%2F%2Fclient.example.com%2Fcb'
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }

const [redis, upstream] = await Promise.all([startRedis(), startUpstream()])
const gateway = await startGateway({
  data: upstream.url,
  limit: 1,
  store: { redis: { url: redis.url }, timeout: '10s', onOutage: 'deny' },
  routes: [
    { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  ],
  more: { par: { issuer: 'https://identity.example.com/oidc' } },
})

/** All kinds of requests to the identity backend, each several times. */
async function askIdentity(): Promise<Got[]> {
  const answers: Got[] = []
  for (let i = 0; i < 5; i++) {
    const mine = await token('acme')
    answers.push(
      await call(gateway.port, { path: '/oidc/.well-known/openid-configuration' }),
      await call(gateway.port, { path: '/oidc/certs' }),
      await call(gateway.port, { path: '/oidc/auth?client_id=acme&request_uri=urn:x' }),
      await call(gateway.port, { method: 'POST', path: '/oidc/token', headers: FORM, body: 'grant_type=x' }),
      await call(gateway.port, { method: 'POST', path: '/oidc/request', headers: FORM, body: PUSHED }),
      await call(gateway.port, { path: '/oidc/me', token: mine }),
    )
  }
  return answers
}

function expectUnlimited(answers: readonly Got[]): void {
  for (const { status, headers } of answers) {
    const reported = Object.keys(headers).filter((name) => name.includes('ratelimit'))
    expect([status, reported]).toEqual([200, []])
  }
}

describe('identity traffic', () => {
  it('identity traffic is never limited, gets no rate-limit headers, and reads no counter', async () => {
    const spend = await token('acme')
    expect((await call(gateway.port, { token: spend })).status).toBe(200)
    expect((await call(gateway.port, { token: spend })).status).toBe(429)
    const before = await readsOfCounters(redis)
    expect(before).toBeGreaterThan(0)
    expectUnlimited(await askIdentity())
    expect(await readsOfCounters(redis)).toBe(before)
  })

  it('identity traffic is forwarded while Redis is down, including pushed requests', async () => {
    await redis.kill()
    expect((await call(gateway.port, { token: await token('other') })).status).toBe(503)
    expectUnlimited(await askIdentity())
  })
})
