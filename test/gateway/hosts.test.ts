import { describe, expect, it } from 'vitest'
import { call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

const ROUTES = `routes:
  - { match: "id.example.com/oidc/*", upstream: identity, authenticate: none }
  - { match: "/*", upstream: data, authenticate: none }`

const back = await startUpstream()
const listed = await startGateway({ data: back.url, listen: ', hosts: [API.example.com]', routes: ROUTES })
const open = await startGateway({ data: back.url, routes: ROUTES })

const statusOf = async ({ port }: TestGateway, host: string, path: string): Promise<number> =>
  (await call(port, { path, headers: { Host: host } })).status

describe('with listen.hosts', () => {
  it.each([
    ['api.example.com', '/x', 200],
    ['API.example.com.:8080', '/x', 200],
    ['id.example.com', '/oidc/auth', 200],
    ['id.example.com', '/x', 404],
    ['internal-admin.svc:8443', '/x', 400],
    ['169.254.169.254', '/oidc/auth', 400],
    ['localhost', '/x', 400],
    ['[::1]', '/x', 400],
  ])('%s%s gets %d', async (host, path, status) => {
    const seen = back.seen.length
    expect(await statusOf(listed, host, path)).toBe(status)
    expect(back.seen.length - seen).toBe(status === 200 ? 1 : 0)
  })

  it.each([
    ['api.example.com', 200],
    ['id.example.com', 404],
    ['localhost', 400],
  ])('an absolute target of %s also gets %d', async (host, status) => {
    const { text } = await raw(
      listed.port,
      `GET http://${host}/x HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    )
    expect(statuses(text)).toEqual([status])
  })
})

it('without listen.hosts, a route without a host serves all hosts', async () => {
  for (const host of ['localhost', '169.254.169.254', 'id.example.com'])
    expect(await statusOf(open, host, '/x')).toBe(200)
})

describe('a request of HTTP/1.0 without Host', () => {
  const bare = 'GET /x HTTP/1.0\r\nX-Forwarded-Host: evil.example\r\n\r\n'

  it('is served where every host is served, and its upstream gets its own host', async () => {
    expect(statuses((await raw(open.port, bare)).text)).toEqual([200])
    const { headers } = back.seen.at(-1)!
    expect(headers).toMatchObject({ host: new URL(back.url).host, 'x-forwarded-port': '80' })
    expect(headers).not.toHaveProperty('x-forwarded-host')
    const { port } = await startGateway({
      data: back.url,
      upstream: 'host: data.example.com',
      routes: ROUTES,
    })
    expect(statuses((await raw(port, bare)).text)).toEqual([200])
    expect(back.seen.at(-1)!.headers.host).toBe('data.example.com')
  })

  it.each([
    ['where every host is served', () => open.port, 'a:81', 200],
    ['where the host is served', () => listed.port, 'api.example.com:81', 404],
  ])(
    'is served with an absolute target %s: its host is that of the request',
    async (_, port, host, status) => {
      const { text } = await raw(port(), `GET http://${host}/x?a HTTP/1.0\r\n\r\n`)
      expect(statuses(text)).toEqual([200])
      const { headers, url } = back.seen.at(-1)!
      expect(url).toBe('/x?a')
      expect(headers).toMatchObject({ host, 'x-forwarded-host': host, 'x-forwarded-port': '81' })
      const other = await raw(port(), 'GET http://id.example.com/x HTTP/1.0\r\n\r\n')
      expect(statuses(other.text)).toEqual([status])
    },
  )

  it.each([
    ['with listen.hosts', () => listed.port, bare],
    ['of HTTP/1.1', () => open.port, 'GET /x HTTP/1.1\r\nConnection: close\r\n\r\n'],
    [
      'with an absolute target of a host that is not served',
      () => listed.port,
      'GET http://a/x HTTP/1.0\r\n\r\n',
    ],
    ['with an absolute target without a host', () => open.port, 'GET http:///x HTTP/1.0\r\n\r\n'],
    [
      'of HTTP/1.1 with an absolute target',
      () => open.port,
      'GET http://a/x HTTP/1.1\r\nConnection: close\r\n\r\n',
    ],
    ['with two hosts', () => open.port, 'GET /x HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n'],
    ['with an empty host', () => open.port, 'GET /x HTTP/1.0\r\nHost:\r\n\r\n'],
  ])('gets a 400 %s', async (_, port, bytes) => {
    expect(statuses((await raw(port(), bytes)).text)).toEqual([400])
  })
})

it.each([
  ['localhost', '80'],
  ['localhost:1337', '1337'],
  ['[::1]', '80'],
  ['[::1]:8443', '8443'],
])('X-Forwarded-Port for Host %s is %s: that of Host, or of the scheme', async (host, port) => {
  await statusOf(open, host, '/x')
  expect(back.seen.at(-1)!.headers).toMatchObject({ 'x-forwarded-host': host, 'x-forwarded-port': port })
})

it('reports listen.publicUrl to upstreams, whatever callers and trusted proxies say', async () => {
  const gateway = await startGateway({
    data: back.url,
    trustedProxies: '[127.0.0.1/32]',
    listen: ', publicUrl: "https://api.example.com:8443/bank/"',
    routes: ROUTES,
  })
  const told = {
    'X-Forwarded-Proto': 'http',
    'X-Forwarded-Host': 'evil.example',
    'X-Forwarded-Prefix': '/evil',
  }
  await call(gateway.port, { path: '/x', headers: { ...told, 'X-Forwarded-Port': '1' } })
  expect(back.seen.at(-1)!.headers).toMatchObject({
    host: `127.0.0.1:${gateway.port}`,
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'api.example.com:8443',
    'x-forwarded-port': '8443',
    'x-forwarded-prefix': '/bank',
  })
})

it('asks an upstream as its host, and reports the caller’s', async () => {
  const gateway = await startGateway({
    data: back.url,
    upstream: 'host: data.example.com',
    routes: ROUTES,
  })
  await call(gateway.port, { path: '/x', headers: { Host: 'api.example.com' } })
  expect(back.seen.at(-1)!.headers).toMatchObject({
    host: 'data.example.com',
    'x-forwarded-host': 'api.example.com',
  })
})

describe('the fields that an upstream trusts', () => {
  const sent = { 'X-My-User': 'evil', x_my_user: 'evil', 'X.My.User': 'evil', 'X-Your-User': 'kept' }
  const arrived = async (trustedProxies: string, headers: Record<string, string>) => {
    const gateway = await startGateway({
      data: back.url,
      trustedProxies,
      upstream: 'identityHeaders: [X-My-User, my_roles]',
      routes: ROUTES,
    })
    await call(gateway.port, { path: '/x', headers })
    const own = back.seen.at(-1)!.headers
    await call(gateway.port, { path: '/oidc/x', headers: { ...headers, Host: 'id.example.com' } })
    return { own, other: back.seen.at(-1)!.headers }
  }

  it('the fields that an upstream trusts are removed in every spelling, only for that upstream', async () => {
    const { own, other } = await arrived('[]', { ...sent, 'My-Roles': 'evil', my_roles: 'evil' })
    for (const name of ['x-my-user', 'x_my_user', 'x.my.user', 'my-roles', 'my_roles'])
      expect(own).not.toHaveProperty([name])
    expect(own['x-your-user']).toBe('kept')
    expect(other).toMatchObject({ 'x-my-user': 'evil', my_roles: 'evil' })
  })

  it('the fields of a trusted proxy are forwarded unchanged, also if Connection names them', async () => {
    const { own } = await arrived('[127.0.0.1/32]', {
      ...sent,
      'X-My-User': 'alice',
      my_roles: 'admin',
      'My-Roles': 'evil',
      Connection: 'X-My-User',
    })
    expect(own).toMatchObject({ 'x-my-user': 'alice', my_roles: 'admin' })
    for (const name of ['x_my_user', 'x.my.user', 'my-roles']) expect(own).not.toHaveProperty([name])
  })
})

it('a caller behind NAT64 is counted and trusted by the embedded IPv4 address', async () => {
  const gateway = await startGateway({
    data: back.url,
    trustedProxies: '[127.0.0.1/32, 10.0.0.0/8, "64:ff9b::b00:0/104"]',
    limits: 'limits: { each: { per: [ip], limit: 2, window: 1h } }',
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: none, limits: [each] }]',
  })
  const remaining = async (forwardedFor: string) =>
    (await call(gateway.port, { headers: { 'X-Forwarded-For': forwardedFor } })).headers[
      'x-ratelimit-remaining'
    ]
  expect(await remaining('64:ff9b::9.9.9.9')).toBe('1')
  expect(await remaining('64:FF9B:0:0:0:0:909:909')).toBe('0')
  expect(await remaining('64:ff9b::8.8.8.8')).toBe('1')
  expect(await remaining('8.8.8.8')).toBe('0')
  expect(await remaining('7.7.7.7, 64:ff9b::10.0.0.1')).toBe('1')
  expect(await remaining('6.6.6.6, 11.0.0.1')).toBe('1')
  expect(await remaining('6.6.6.6, 64:ff9b::11.0.0.1')).toBe('0')
  // Only the prefix of 96 bits.
  expect(await remaining('64:ff9b:0:0:0:1:505:505')).toBe('1')
  expect(await remaining('5.5.5.5')).toBe('1')
})
