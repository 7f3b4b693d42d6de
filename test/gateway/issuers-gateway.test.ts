import { describe, expect, it } from 'vitest'
import { call, startGateway, startLogging } from '../helpers/gateway.ts'
import { makeKey, startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const data = await startUpstream()
const [first, second] = await Promise.all([
  startIssuer({ algorithms: ['ES256'] }),
  startIssuer({ algorithms: ['ES256'] }),
])

describe('an issuer with several names, which are not URLs', () => {
  const NAMES = ['acme.com', 'urn:acme:login', 'https://login.acme.example/']
  const tokens = [
    { issuer: NAMES, audience: first.audience, jwks: first.jwksUri },
    { issuer: ['other one', 'acme@example'], audience: second.audience, jwks: second.jwksUri },
  ]
  const limits = { requests: { per: ['client'], limit: 3, window: '1h' } }
  const routes = [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] }]
  const more = {
    clients: [
      { id: 'big', issuer: 'urn:acme:login', limits: { requests: { limit: 4 } } },
      { id: 'big', issuer: 'acme@example', limits: { requests: { limit: 5 } } },
    ],
  }

  it('counts a client once, and reads one set of keys', async () => {
    const { port, adminPort, lines } = await startLogging({ data: data.url, tokens, limits, routes, more })
    const sendAs = (issuer: TestIssuer, iss: string, client: string) =>
      call(port, { path: '/x', token: issuer.token({ iss, client_id: client }) })
    const statuses: number[] = []
    for (const iss of [...NAMES, ...NAMES]) statuses.push((await sendAs(first, iss, 'app')).status)
    expect(statuses).toEqual([200, 200, 200, 429, 429, 429])
    expect((await sendAs(second, 'acme@example', 'app')).headers['x-ratelimit-remaining']).toBe('2')
    expect((await sendAs(second, 'other one', 'app')).headers['x-ratelimit-remaining']).toBe('1')
    expect((await sendAs(first, NAMES[2]!, 'big')).headers['x-ratelimit-limit']).toBe('4')
    expect((await sendAs(second, 'other one', 'big')).headers['x-ratelimit-limit']).toBe('5')
    await until('the log', () => lines().filter(({ path }) => path === '/x').length === 10)
    const logged = lines().flatMap(({ path, client }) => (path === '/x' ? [String(client)] : []))
    expect([...new Set(logged)].toSorted()).toEqual(['app', 'app@other one', 'big', 'big@other one'])
    const { body: text } = await call(adminPort, { path: '/metrics' })
    expect(text).toContain('sluice_issuer_keys_age_seconds{issuer="acme.com"}')
    expect(text).not.toContain('urn:acme:login')
    // The tokens of one issuer under the name of the other, and names that only resemble one.
    for (const iss of [
      'other one',
      'acme@example',
      'acme.com/',
      'ACME.com',
      ['acme.com'],
      'login.acme.example',
    ])
      expect((await sendAs(first, iss as string, 'app')).status).toBe(401)
    const { headers } = await call(port, { path: '/x' })
    expect(headers['www-authenticate']).toMatch(/^Bearer realm="acme.com"/)
  })
})

it('the keys of an issuer are read again when they change, and stay in use while the issuer is down', async () => {
  const moving = await startIssuer({ algorithms: ['ES256'] })
  const { port } = await startGateway({
    data: data.url,
    tokens: { issuer: moving.issuer, audience: moving.audience },
  })
  const statusOf = async (token: string) => (await call(port, { token })).status
  const old = moving.token()
  expect(await statusOf(old)).toBe(200)
  moving.rotate()
  expect(await statusOf(moving.token())).toBe(200)
  expect(await statusOf(old)).toBe(401)
  moving.fault = 'down'
  for (let i = 0; i < 3; i++) {
    expect(await statusOf(moving.token())).toBe(200)
    expect(await statusOf(moving.token({}, { key: makeKey('ES256') }))).toBe(401)
  }
})
