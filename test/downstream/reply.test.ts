import { describe, expect, it } from 'vitest'
import { refusalReply } from '../../src/downstream/reply.ts'
import { notFound } from '../../src/errors.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

const upstream = await startUpstream()
const gateway = await startGateway({
  data: upstream.url,
  routes: [
    { match: 'POST id.example.com/oidc/request', upstream: 'identity', authenticate: 'par' },
    { match: 'GET id.example.com/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: 'GET both.example.com/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: 'GET both.example.com/v3/*', upstream: 'data', authenticate: 'bearer' },
    { match: 'GET /v3/*', upstream: 'data', authenticate: 'bearer' },
  ],
  more: { par: { issuer: 'https://id.example.com/oidc' } },
})

const REFUSED = [
  ['an ambiguous target', 'GET', '/oidc/..%2fadmin', 400],
  ['a path without a route', 'GET', '/elsewhere', 404],
  ['an unknown method', 'PROPFIND', '/oidc/auth', 405],
] as const

describe.each(REFUSED)('%s is refused', (_, method, path, status) => {
  const send = (host: string) => call(gateway.port, { method, path, headers: { Host: host } })

  it.each(['id.example.com', 'ID.Example.com:8443', 'id.example.com.'])(
    'in the format of OAuth at %s, with only identity routes',
    async (host) => {
      const refused = await send(host)
      expect([refused.status, refused.headers['content-type']]).toEqual([status, 'application/json'])
      expect(refused.json).toEqual({ error: 'invalid_request', error_description: expect.any(String) })
      expect(refused.headers['cache-control']).toBe('no-store')
    },
  )

  it.each(['both.example.com', 'api.example.com', 'not a host'])(
    'in the format of the Data API at %s',
    async (host) => {
      const { headers, json } = await send(host)
      expect(headers['content-type']).toBe('application/problem+json')
      expect(json).toMatchObject({ status: expect.any(Number), code: expect.any(String) })
    },
  )
})

it('a description of OAuth has no quotes (RFC 6749 section 5.2)', async () => {
  const headers = { Host: 'id.example.com', 'Transfer-Encoding': 'gzip' }
  const { status, json } = await call(gateway.port, { method: 'POST', path: '/oidc/request', headers })
  expect(status).toBe(400)
  expect(json.error_description).toMatch(/^[^"\\]*'chunked'[^"\\]*$/)
})

it.each([
  [{ errors: 'oauth' }, 'application/json'],
  [{ errors: 'problem' }, 'application/problem+json'],
  [{ maxConnections: 9 }, 'application/problem+json'],
])('with %j, a refusal on a route to the upstream is %s', async (settings, contentType) => {
  const routes = [{ match: '/*', upstream: 'data', authenticate: 'bearer' }]
  const { port, close } = await startGateway({ data: upstream.url, upstream: settings, routes })
  const { status, headers } = await call(port)
  await close()
  expect([status, headers['content-type']]).toEqual([401, contentType])
})

it('a 503 has Retry-After and its problem type', async () => {
  const down = await startGateway({
    data: upstream.url,
    store: { redis: { url: 'redis://127.0.0.1:1' }, onOutage: 'deny' },
  })
  const { status, headers, json } = await call(down.port, { token: await token('acme') })
  await down.close()
  expect([status, headers['retry-after'], json.type]).toEqual([
    503,
    '1',
    'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
  ])
})

it('with errors.documentation, the type of a problem leads to the entry of its code there', async () => {
  const page = 'https://docs.example.com/errors'
  const { port, close } = await startGateway({
    data: upstream.url,
    limit: 0,
    more: { errors: { documentation: page } },
  })
  const got = await Promise.all([
    call(port),
    call(port, { token: await token('acme') }),
    call(port, { path: '/none' }),
    call(port, { path: '/%00' }),
  ])
  await close()
  expect(got.map(({ json }) => json.type)).toEqual(
    ['unauthorized', 'toomanyrequests', 'notfound', 'badrequest'].map((anchor) => `${page}#${anchor}`),
  )
})

it('a refusal that is replied to again has the request id and the documentation of the reply', () => {
  const refusal = notFound()
  const replies = [
    ['1', undefined],
    ['2', undefined],
    ['3', 'https://docs.example.com/errors'],
    ['4', undefined],
  ] as const
  const bodies = replies.map(([id, docs]) => JSON.parse(refusalReply(refusal, 'problem', id, docs).body))
  expect(bodies.map(({ correlationId, type }) => [correlationId, type])).toEqual([
    ['1', 'about:blank'],
    ['2', 'about:blank'],
    ['3', 'https://docs.example.com/errors#notfound'],
    ['4', 'about:blank'],
  ])
})
