import { describe, expect, it } from 'vitest'
import { startLogging, startGateway, yaml } from '../helpers/gateway.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const data = await startUpstream()
const limits = 'limits: { reads: { per: [ip, id], limit: 2, window: 1m } }'
const routes = `routes:
  - { match: "POST /oidc/request", upstream: data, authenticate: par }
  - { match: "/items/:id", upstream: data, authenticate: none, limits: [reads] }
  - { match: "/*", upstream: data, authenticate: none }`
const gateway = await startLogging(
  yaml({ data: data.url, limits, routes, more: 'par: { issuer: https://identity.example.com/oidc }' }),
)

async function send(port: number, target: string, host = 'api.example.com', method = 'GET') {
  const head = `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`
  const { text } = await raw(port, head, answered)
  return { status: statuses(text)[0], text }
}

describe('the target of a request', () => {
  it.each([
    '/model/anthropic.claude-v2%3A1/invoke',
    '/keys/C%2B%2B',
    '/a%40b%2C%27%7e%c3%a9',
    '/%61%2d%5F',
    '/api/v4/projects/group%2Fproject',
    '/api/queues/%2F/orders',
    '/remote.php/dav/files',
    '/index.php/rest/V1/products',
    '/2.3/questions/1;2;3',
    '//v3/accounts',
    '/bucket/a//b.txt?x=%2f//',
    '/a"<>[]^`{|}\\b',
    '/100%25',
    '/?/v3/x',
  ])('%s is forwarded byte for byte', async (target) => {
    const { status } = await send(gateway.port, target)
    expect([status, data.seen.at(-1)!.url]).toEqual([200, target])
  })

  it('is forwarded from absolute form, for a host that a route for all hosts serves', async () => {
    const { status } = await send(gateway.port, 'http://any.example/a%3Ab?c', 'any.example')
    const { url, headers } = data.seen.at(-1)!
    expect([status, url, headers.host]).toEqual([200, '/a%3Ab?c', 'any.example'])
  })

  it('is counted and logged in canonical spelling', async () => {
    const before = gateway.lines().length
    for (const spelling of ['/items/a%3ab', '/%69tems/a:b']) await send(gateway.port, spelling)
    expect((await send(gateway.port, '/items/A%3AB')).status).toBe(429)
    const isItem = ({ path }: { path?: unknown }) => String(path).startsWith('/items')
    const logged = () => gateway.lines().slice(before).filter(isItem)
    await until('three lines', () => logged().length === 3)
    expect(logged().map(({ path }) => path)).toEqual(['/items/a:b', '/items/a:b', '/items/A:B'])
  })

  it.each([
    ['/items%2Fa', '"/items%2Fa" (the route "/*") or as "/items/a" (the route "/items/:id")'],
    ['/items/a;b', 'as "/items/a" (the route "/items/:id", another id)'],
    ['//items/a', '(the route "/items/:id")'],
    ['/x/..%2Fitems/a', 'a dot segment'],
  ])('%s gets a 400 that says why, and is not forwarded', async (target, why) => {
    const before = data.seen.length
    const { status, text } = await send(gateway.port, target)
    expect(status).toBe(400)
    expect(JSON.parse(text.slice(text.indexOf('{'))).detail).toContain(why)
    expect(data.seen).toHaveLength(before)
  })

  it('of a guarded path has one reading', async () => {
    const before = data.seen.length
    for (const target of ['/oidc//request', '/oidc/request;a', '/oidc%2Frequest', '/x.php/oidc/request'])
      expect((await send(gateway.port, target, undefined, 'POST')).status, target).toBe(400)
    expect(data.seen).toHaveLength(before)
  })
})

it('all paths with several readings pass where one route serves all', async () => {
  const one = 'routes: [{ match: "/*", upstream: data, authenticate: none }]'
  const open = await startGateway({ data: data.url, limits: '', routes: one })
  for (const target of ['/items%2Fa', '/items/a;b', '//items/a', '/(S(x))/a', '/a%252Fb'])
    expect([(await send(open.port, target)).status, data.seen.at(-1)!.url]).toEqual([200, target])
  await open.close()
})

it.each(['/café', '/x?q=ü'])('a target that is not ASCII, such as %s, gets a 400', async (target) => {
  const seen = data.seen.length
  expect((await send(gateway.port, target)).status).toBe(400)
  expect((await send(gateway.port, '/x', 'a', 'LIST')).status).toBe(400)
  expect(data.seen).toHaveLength(seen)
})
