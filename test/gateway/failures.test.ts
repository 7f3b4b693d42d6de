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
import { startUpstream } from '../helpers/upstream.ts'
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
  let gateway: TestGateway
  const start = async (settings: Partial<Settings>) => {
    gateway = await startGateway({
      data: (await startUpstream()).url,
      trustedProxies: ['127.0.0.1/32'],
      more: { failures: { limit: 3, window: '1h' } },
      ...settings,
    })
  }
  const from = (ip: string, more: Parameters<typeof call>[1] = {}) =>
    call(gateway.port, { ...more, headers: { 'X-Forwarded-For': ip } })

  it('sends an address at most `limit` 401s, also if more requests waited for the keys', async () => {
    const waiting: (() => void)[] = []
    const others = JSON.stringify({ keys: [makeKey('ES256').jwk] })
    const keys = await startUpstream((_, response) => waiting.push(() => response.end(others)))
    await start({ tokens: { ...TOKENS, jwks: `${keys.url}/jwks` } })
    const bad = await token('someone')
    const asked = Array.from({ length: 10 }, () => from('192.0.2.1', { token: bad }))
    await until('the keys are asked for', () => waiting.length > 0)
    await new Promise((resolve) => setTimeout(resolve, 100))
    for (const answer of waiting) answer()
    const answers = (await Promise.all(asked)).map(({ status }) => status).toSorted((a, b) => a - b)
    expect(answers).toEqual([401, 401, 401, 429, 429, 429, 429, 429, 429, 429])
    await keys.close()
  })

  it('the gateway does not authenticate a push if its address failed too often while the body arrived', async () => {
    await start({
      routes: [
        { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
        ...ROUTES.slice(1),
      ],
      more: { failures: { limit: 1, window: '1h' }, par: { issuer: 'https://identity.example.com/oidc' } },
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
})
