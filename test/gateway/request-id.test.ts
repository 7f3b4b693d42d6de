import { describe, expect, it } from 'vitest'
import { call, ROUTES, startGateway, token } from '../helpers/gateway.ts'
import { raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

const upstream = await startUpstream((request, response) => {
  const own = request.headers['x-own-id']
  response.writeHead(200, own === undefined ? {} : { 'x-REQUEST-id': own }).end('{}')
})
const gateway = await startGateway({
  data: upstream.url,
  limit: 2,
  routes: ROUTES.replace(
    'routes:',
    `routes:
  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer }
  - { match: "POST /oidc/par", upstream: identity, authenticate: par }`,
  ),
  more: 'par: { issuer: "https://identity.example.com/oidc" }',
})

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/
const idOf = async (options: Parameters<typeof call>[1]): Promise<string | undefined> => {
  const { rawHeaders } = await call(gateway.port, options)
  const ids = rawHeaders.filter((_, i) => i % 2 === 1 && /^x-request-id$/i.test(rawHeaders[i - 1]!))
  expect(ids).toHaveLength(1)
  return ids[0]
}

describe('X-Request-Id', () => {
  it('X-Request-Id is the upstream’s id, or else the id of the request, or else a new id', async () => {
    const mine = { 'X-Request-Id': 'mine/1' }
    expect(await idOf({ path: '/oidc/x', headers: { ...mine, 'X-Own-Id': 'theirs' } })).toBe('theirs')
    expect(await idOf({ path: '/oidc/x', headers: mine })).toBe('mine/1')
    expect(await idOf({ path: '/oidc/x', headers: { 'X-Request-Id': 'a b' } })).toMatch(UUID)
    expect(await idOf({ path: '/oidc/x' })).toMatch(UUID)
  })

  it('X-Request-Id is different for each of many requests', async () => {
    const ids = await Promise.all(Array.from({ length: 300 }, () => idOf({ path: '/oidc/x' })))
    for (const id of ids) expect(id).toMatch(UUID)
    expect(new Set(ids).size).toBe(300)
  })

  it.each([
    ['an ambiguous target', { path: '/a/..%2fb' }, 400],
    ['no token', { path: '/v3/x' }, 401],
    ['a path of no route', { path: '/nowhere' }, 404],
    ['a method of no route', { path: '/transactions', method: 'PUT' }, 405],
    ['a pushed request that is none', { path: '/oidc/par', method: 'POST', body: 'a=b' }, 400],
  ])('X-Request-Id is in the refusal of %s', async (_, options, status) => {
    expect(await call(gateway.port, options)).toMatchObject({ status })
    expect(await idOf({ ...options, headers: { 'X-Request-Id': 'mine' } })).toBe('mine')
  })

  it('X-Request-Id is in a 429 and in the gateway’s own response with limits', async () => {
    const options = { token: await token('many'), headers: { 'X-Request-Id': 'mine' } }
    for (const status of [200, 200, 429]) expect(await call(gateway.port, options)).toMatchObject({ status })
    expect(await idOf(options)).toBe('mine')
    expect(await idOf({ ...options, path: '/v3/rate-limits' })).toBe('mine')
  })

  it.each([
    ['garbage', 'garbage\r\n\r\n', 400],
    ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n', 405],
    ['too many fields', `GET / HTTP/1.1\r\nHost: a\r\n${'A: b\r\n'.repeat(300)}\r\n`, 431],
  ])('X-Request-Id is a new id for %s', async (_, bytes, status) => {
    const { text } = await raw(gateway.port, bytes)
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    expect(/^X-Request-Id: (.*)\r$/m.exec(text)?.[1]).toMatch(UUID)
  })
})
