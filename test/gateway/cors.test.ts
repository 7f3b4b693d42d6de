import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, type Call, type Got, startGateway, startLogging, token, yaml } from '../helpers/gateway.ts'
import { raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const APP = 'https://app.example.com'
const EVIL = 'https://evil.example'
const EXPOSED = expect.stringMatching(
  /^X-RateLimit-Limit, .*\bRetry-After, WWW-Authenticate, X-Request-Id$/,
) as string

const back = await startUpstream((seen, response) => {
  const fields: Record<string, string> = { Vary: 'Accept' }
  if (seen.url?.startsWith('/open/own') === true) fields['Access-Control-Allow-Origin'] = 'https://b.example'
  if (seen.url?.startsWith('/open/broken') === true) return response.destroy()
  return response.writeHead(200, fields).end('{}')
})
const LIMITS = `limits:
  requests: { per: [client], limit: 2, window: 1m }
  own: { per: [ip], limit: 1, window: 1m, refusal: { status: 429, headers: { Access-Control-Allow-Origin: "*" } } }`
const ROUTES = `routes:
  - { match: "POST /par", upstream: data, authenticate: par }
  - { match: "GET /health", respond: health, authenticate: none }
  - { match: "GET,DELETE /items/:item", upstream: data, authenticate: bearer, limits: [requests], maxBody: 1kB }
  - { match: "PUT /items/:item", upstream: data, authenticate: bearer, cors: none }
  - { match: "PATCH /items/:item", upstream: data, authenticate: none, cors: { origins: ["*"], maxAge: 0s } }
  - { match: "/open/*", upstream: data, authenticate: none, maxBody: 1kB }
  - { match: "OPTIONS /called", upstream: data, authenticate: none }
  - { match: "GET /own", upstream: data, authenticate: none, limits: [own] }
  - { match: "/payments", upstream: data, authenticate: bearer, scope: [payments] }
`
const MORE = `par: { issuer: https://id.example.com }
cors: { origins: ["${APP}:443", "http://LOCALHOST:3000"], credentials: true }`
const gateway = await startLogging({ data: back.url, limits: LIMITS, routes: ROUTES, more: MORE })
const only = await startGateway({
  data: back.url,
  routes: `routes:
  - { match: "GET /a", upstream: data, authenticate: none, cors: { origins: ["${APP}"] } }
  - { match: "GET /a/:id", upstream: data, authenticate: none, cors: { origins: ["${APP}"] } }
  - { match: "GET /b", upstream: data, authenticate: none }`,
})

const corsFields = ({ headers }: Got): Record<string, unknown> => ({
  ...Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-'))),
  ...(headers.vary === undefined ? {} : { vary: headers.vary }),
})
const READABLE = {
  'access-control-allow-origin': APP,
  'access-control-allow-credentials': 'true',
  'access-control-expose-headers': EXPOSED,
}
const preflight = (path: string, method: string, { origin = APP, ...more }: Record<string, string> = {}) =>
  call(gateway.port, {
    method: 'OPTIONS',
    path,
    headers: { Origin: origin, 'Access-Control-Request-Method': method, ...more },
  })
const get = ({ headers = {}, ...options }: Call) =>
  call(gateway.port, { ...options, headers: { Origin: APP, ...headers } })

describe('a preflight', () => {
  it('gets a 204 without a token, a call, a failure or a request to the upstream', async () => {
    const seen = back.seen.length
    for (let i = 0; i < 5; i++) {
      const answer = await preflight('/items/a', 'DELETE', {
        'Access-Control-Request-Headers': 'authorization,content-type',
        'Access-Control-Request-Private-Network': 'true',
      })
      expect([answer.status, answer.body, answer.headers['content-length']]).toEqual([204, '', undefined])
      expect(corsFields(answer)).toEqual({
        ...READABLE,
        'access-control-allow-methods': 'GET, HEAD, DELETE',
        'access-control-allow-headers': 'authorization,content-type',
        'access-control-max-age': '600',
        vary: 'Access-Control-Request-Method, Access-Control-Request-Headers, Origin',
      })
    }
    expect(back.seen.length).toBe(seen)
    const first = await get({ path: '/items/a', token: await token('fresh') })
    expect([first.status, first.headers['x-ratelimit-remaining']]).toEqual([200, '1'])
  })

  it('is logged and counted as a request of the gateway to the route of its method', async () => {
    const { headers } = await preflight('/items/logged', 'DELETE')
    const lines = () => gateway.lines().filter(({ requestId }) => requestId === headers['x-request-id'])
    await until('the request is logged', () => lines().length === 1)
    expect(lines()[0]).toMatchObject({
      ...{ method: 'OPTIONS', path: '/items/logged', route: 'GET,DELETE /items/:item' },
      ...{ source: 'gateway', status: 204, bytes: 0 },
    })
    expect(lines()[0]).not.toHaveProperty('decision')
    expect((await call(gateway.adminPort, { path: '/metrics' })).body).toContain(
      'sluice_http_requests_total{route="GET,DELETE /items/:item",method="OPTIONS",code="204",source="gateway",upstream="data"}',
    )
  })

  it('gets no permission for an origin that is not allowed', async () => {
    const answer = await preflight('/items/a', 'DELETE', { origin: EVIL })
    expect(answer.status).toBe(204)
    expect(corsFields(answer)).toEqual({
      vary: 'Access-Control-Request-Method, Access-Control-Request-Headers, Origin',
    })
  })

  it('has the settings of the route that matches the method that it announces', async () => {
    expect(corsFields(await preflight('/items/a', 'PATCH', { origin: EVIL }))).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'PATCH',
      'access-control-max-age': '0',
    })
    const closed = await preflight('/items/a', 'PUT')
    expect([closed.status, corsFields(closed)['access-control-allow-methods']]).toEqual([405, undefined])
  })

  it('is one only with Origin and a method, and without a body; others are calls', async () => {
    const statusOf = async (headers: Record<string, string>, body?: string) =>
      (
        await call(gateway.port, {
          method: 'OPTIONS',
          path: '/called',
          headers,
          ...(body === undefined ? {} : { body }),
        })
      ).status
    expect(await statusOf({ Origin: APP, 'Access-Control-Request-Method': 'OPTIONS' })).toBe(204)
    expect(await statusOf({ Origin: APP })).toBe(200)
    expect(await statusOf({ 'Access-Control-Request-Method': 'OPTIONS' })).toBe(200)
    const framed = { 'Access-Control-Request-Method': 'OPTIONS', 'Content-Length': '1' }
    expect(await statusOf({ Origin: APP, ...framed }, 'x')).toBe(400)
  })

  it('to the PAR endpoint gets what it got: a 405 that no page can read', async () => {
    const answer = await preflight('/par', 'POST')
    expect([answer.status, corsFields(answer)]).toEqual([405, {}])
  })

  it('without cors for the path, is an ordinary request', async () => {
    const headers = { Origin: APP, 'Access-Control-Request-Method': 'GET' }
    const ask = (path: string) => call(only.port, { method: 'OPTIONS', path, headers })
    expect([(await ask('/a')).status, (await ask('/b')).status, (await ask('/c')).status]).toEqual([
      204, 405, 404,
    ])
  })
})

it('preflights are not failures of an address, whose later 429 can be read', async () => {
  const counting = await startGateway({
    data: back.url,
    routes: `routes:\n  - { match: "/a", upstream: data, authenticate: bearer }`,
    more: `failures: { limit: 1, window: 1m }\ncors: { origins: ["${APP}"] }`,
  })
  const headers = { Origin: APP, 'Access-Control-Request-Method': 'GET' }
  const ask = async (method: string, path: string) => {
    const answer = await call(counting.port, { method, path, headers })
    return [answer.status, answer.headers['access-control-allow-origin']]
  }
  for (const path of ['/a', '/none', '/a']) expect(await ask('OPTIONS', path)).toEqual([204, APP])
  expect(await ask('GET', '/a')).toEqual([401, APP])
  expect(await ask('GET', '/a')).toEqual([429, APP])
  expect(await ask('OPTIONS', '/a')).toEqual([204, APP])
})

describe('a response can be read by an allowed origin', () => {
  it('of the upstream, whose Vary is kept', async () => {
    const answer = await get({ path: '/open/a' })
    expect(corsFields(answer)).toEqual({ ...READABLE, vary: 'Accept, Origin' })
    expect(
      corsFields(await get({ path: '/open/a', headers: { Origin: 'http://localhost:3000' } })),
    ).toMatchObject({
      'access-control-allow-origin': 'http://localhost:3000',
    })
  })

  it('of the upstream that allows another origin itself, with the fields of the gateway', async () => {
    expect(corsFields(await get({ path: '/open/own' }))).toEqual({
      'access-control-allow-origin': 'https://b.example',
      'access-control-expose-headers': EXPOSED,
      vary: 'Accept, Origin',
    })
  })

  it('of the gateway, whether it refuses or answers', async () => {
    const spent = await token('spent')
    const reader = await token('reader', { scope: 'other' })
    for (let i = 0; i < 2; i++) expect((await get({ path: '/items/a', token: spent })).status).toBe(200)
    const tooLarge = Buffer.alloc(2000)
    const cases: readonly (readonly [number, Call])[] = [
      [200, { path: '/health' }],
      [400, { path: '/open/%00' }],
      [400, { path: '/items/a%2Fb', token: spent }],
      [401, { path: '/items/a' }],
      [403, { path: '/payments', token: reader }],
      [404, { path: '/none' }],
      [405, { path: '/items/a', method: 'POST' }],
      [413, { path: '/open/a', method: 'POST', body: tooLarge }],
      [429, { path: '/items/a', token: spent }],
      [502, { path: '/open/broken' }],
    ]
    for (const [status, options] of cases) {
      const answer = await get(options)
      expect([status, answer.status, corsFields(answer)]).toEqual([
        status,
        status,
        { ...READABLE, vary: 'Origin' },
      ])
    }
  })

  it('if the gateway refuses the body of a slow caller', async () => {
    const slow = await startGateway({
      data: back.url,
      listen: ', requestTimeout: 1s',
      routes: `routes:\n  - { match: "/*", upstream: data, authenticate: none }`,
      more: `cors: { origins: ["*"] }`,
    })
    const head = `POST / HTTP/1.1\r\nHost: a\r\nOrigin: ${APP}\r\nContent-Length: 5\r\n\r\nx`
    const { text } = await raw(slow.port, head)
    expect(text).toMatch(/^HTTP\/1\.1 408 /)
    expect(text).toContain('\r\nAccess-Control-Allow-Origin: *\r\n')
  })

  it('once, if a configured refusal allows an origin itself', async () => {
    await get({ path: '/own' })
    const answer = await get({ path: '/own' })
    expect(answer.status).toBe(429)
    expect(corsFields(answer)).toEqual({ 'access-control-allow-origin': '*', vary: 'Origin' })
  })
})

it.each([
  ['/a', 'GET', 200, APP],
  ['/a', 'POST', 405, APP],
  ['/a/;x', 'GET', 400, APP],
  ['/b', 'GET', 200, undefined],
  ['/b', 'POST', 405, undefined],
  ['/c', 'GET', 404, undefined],
])(
  'with cors only at a route, %s gets for %s a %i that %s can read',
  async (path, method, status, allowed) => {
    const answer = await call(only.port, { method, path, headers: { Origin: APP } })
    expect([answer.status, answer.headers['access-control-allow-origin']]).toEqual([status, allowed])
  },
)

it('a response to another origin, or to none, has no field of CORS but Vary', async () => {
  const acme = await token('acme')
  for (const headers of [{ Origin: EVIL }, { Origin: 'null' }, {}] as Record<string, string>[]) {
    expect(corsFields(await call(gateway.port, { path: '/open/a', headers }))).toEqual({
      vary: 'Accept, Origin',
    })
    expect(corsFields(await call(gateway.port, { path: '/payments', token: acme, headers }))).toEqual({
      vary: 'Origin',
    })
  }
})

it('a route with cors: none has no field of CORS, nor Vary', async () => {
  const answer = await get({ path: '/items/a', method: 'PUT', token: await token('acme') })
  expect([answer.status, corsFields(answer)]).toEqual([200, { vary: 'Accept' }])
})

it('a preflight with a chunk is refused, and closes the connection', async () => {
  const head = `OPTIONS /called HTTP/1.1\r\nHost: a\r\nOrigin: ${APP}\r\nAccess-Control-Request-Method: GET\r\nTransfer-Encoding: chunked\r\n\r\n`
  const { text, closed } = await raw(gateway.port, `${head}1\r\nx\r\n`)
  expect(text).toMatch(/^HTTP\/1\.1 400 /)
  expect(closed).toBe(true)
})

it('preflights on one connection are answered in order', async () => {
  const one = (method: string) =>
    `OPTIONS /items/a HTTP/1.1\r\nHost: a\r\nOrigin: ${APP}\r\nAccess-Control-Request-Method: ${method}\r\n\r\n`
  const { text } = await raw(
    gateway.port,
    one('GET') + one('PATCH') + one('DELETE'),
    (all) => all.split('HTTP/').length > 3,
  )
  expect(text.match(/Allow-Methods: .*/g)).toEqual([
    'Allow-Methods: GET, HEAD, DELETE',
    'Allow-Methods: PATCH',
    'Allow-Methods: GET, HEAD, DELETE',
  ])
})

it('a reload applies the new origins', async () => {
  const textWith = (cors: string) =>
    yaml({
      data: back.url,
      routes: 'routes: [{ match: "/*", upstream: data, authenticate: none }]',
      more: `cors: ${cors}`,
    })
  const file = join(createFolder(), 'sluice.yaml')
  const { port, running } = await startGateway(textWith(`{ origins: ["${EVIL}"] }`), file)
  const allowed = async () =>
    (await call(port, { path: '/a', headers: { Origin: APP } })).headers['access-control-allow-origin']
  expect(await allowed()).toBeUndefined()
  writeFileSync(file, textWith(`{ origins: ["${APP}"] }`))
  await running.reload('file-change')
  expect(await allowed()).toBe(APP)
})
