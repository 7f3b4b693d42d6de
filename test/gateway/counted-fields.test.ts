import { expect, it } from 'vitest'
import { call, startGateway, startLogging, yaml } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** A field that a limit counts by, or that a condition reads: limits and the upstream get the same one, from the same sender. */

const data = await startUpstream()

type Fields = Record<string, string | string[]>

const KEYS = '{ per: ["header:x-api-key"], limit: 3, window: 1m }'
const SKIPPING = '{ per: ["header:x-api-key"], missing: skip, limit: 3, window: 1m }'
const USERS = '{ per: ["header:x-my-user"], missing: skip, limit: 3, window: 1m }'
const FREE = '{ per: [], when: { header: x-plan, is: free }, limit: 3, window: 1m }'
const INTERNAL = '{ per: [], unless: { header: x-my-user, is: "admin" }, limit: 3, window: 1m }'
/** What a caller and what a trusted proxy send. */
const CALLER = '[]'
const PROXY = '[127.0.0.1/32]'

async function calls(limit: string, trustedProxies: string, fields: (i: number) => Fields) {
  const { port } = await startGateway({
    data: data.url,
    trustedProxies,
    upstream: 'identityHeaders: [X-My-User]',
    limits: `limits: { counted: ${limit} }`,
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: none, limits: [counted] }]',
  })
  data.seen.length = 0
  const statuses: number[] = []
  for (let i = 0; i < 5; i++) statuses.push((await call(port, { headers: fields(i) })).status)
  return { statuses, seen: data.seen.map(({ headers }) => headers) }
}
const LIMITED = [200, 200, 200, 429, 429]
const REFUSED = [400, 400, 400, 400, 400]

it.each(['X_API_KEY', 'X.API.KEY', 'X-Api_Key', 'x~api+key'])(
  'drops %s, which a backend may read as the field that is counted',
  async (name) => {
    const { seen } = await calls(KEYS, CALLER, (i) => ({ 'X-Api-Key': `made-up-${i}`, [name]: 'stolen' }))
    expect(seen.length).toBe(5)
    expect(JSON.stringify(seen)).not.toContain('stolen')
    expect(seen.map((headers) => headers['x-api-key'])).toEqual([0, 1, 2, 3, 4].map((i) => `made-up-${i}`))
    expect((await calls(KEYS, CALLER, () => ({ [name]: 'stolen' }))).statuses).toEqual(REFUSED)
    const skipped = await calls(SKIPPING, CALLER, () => ({ [name]: 'stolen' }))
    expect(JSON.stringify(skipped.seen)).not.toContain('stolen')
  },
)

it.each(['', 'keep-alive, ', ',,, '])(
  'counts by a field that Connection names (after "%s"), and forwards it',
  async (before) => {
    const { statuses, seen } = await calls(SKIPPING, CALLER, () => ({
      'X-Api-Key': 'one',
      Connection: `${before}x-api-key`,
    }))
    expect(statuses).toEqual(LIMITED)
    expect(seen.map((headers) => headers['x-api-key'])).toEqual(['one', 'one', 'one'])
  },
)

it.each([
  ['an identity field', USERS, { 'X-My-User': 'anna', Connection: 'keep-alive, x-my-user' }],
  ['a field that a condition reads', FREE, { 'X-Plan': 'free', Connection: 'X-Plan' }],
])('counts by %s of a trusted proxy that passes on the Connection of its caller', async (_, limit, sent) => {
  const { statuses, seen } = await calls(limit, PROXY, () => sent)
  expect(statuses).toEqual(LIMITED)
  for (const headers of seen) expect(Object.values(headers)).toContain(Object.values(sent)[0])
})

it.each([
  ['counts by', USERS, 'anna', [200, 200, 200, 200, 200]],
  ['is left out by', INTERNAL, 'admin', LIMITED],
])('a limit that %s an identity field does not believe a caller', async (_, limit, value, expected) => {
  const { statuses, seen } = await calls(limit, CALLER, () => ({ 'X-My-User': value }))
  expect(statuses).toEqual(expected)
  for (const headers of seen) expect(headers).not.toHaveProperty('x-my-user')
})

it('a limit that is left out by an identity field believes a trusted proxy', async () => {
  const { statuses, seen } = await calls(INTERNAL, PROXY, () => ({ 'X-My-User': 'admin' }))
  expect(statuses).toEqual([200, 200, 200, 200, 200])
  for (const headers of seen) expect(headers['x-my-user']).toBe('admin')
})

it.each(['free, paid', 'paid,free', 'FREE', ' free ,'])('a condition reads the list "%s"', async (value) => {
  expect((await calls(FREE, CALLER, () => ({ 'X-Plan': value }))).statuses).toEqual(LIMITED)
})

it.each(['X-Sluice-Client', 'X_Sluice_Client', 'x.sluice-client'])(
  'drops %s from every peer',
  async (name) => {
    for (const proxies of [CALLER, PROXY]) {
      const { seen } = await calls(KEYS, proxies, () => ({ [name]: 'victim', 'X-Api-Key': 'k' }))
      expect(seen.length).toBe(3)
      expect(JSON.stringify(seen)).not.toContain('victim')
    }
  },
)

it.each(['X_API_KEY', 'X.Sluice.Client', 'x-sluice~client'])(
  'refuses %s of a proxy that asks, because only the proxy could drop it',
  async (name) => {
    const gateway = await startGateway(
      yaml({
        data: data.url,
        limits: `limits: { counted: ${SKIPPING} }`,
        routes: 'routes: [{ match: "/*", upstream: data, authenticate: none, limits: [counted] }]',
        more: 'forwardAuth: { port: 0, from: traefik }',
      }),
    )
    const asked = {
      'X-Forwarded-Method': 'GET',
      'X-Forwarded-Uri': '/a',
      'X-Forwarded-Host': 'a.example',
      'X-Forwarded-For': '192.0.2.1',
    }
    expect((await call(gateway.askPort, { headers: { ...asked, 'X-Api-Key': 'a' } })).status).toBe(200)
    const got = await call(gateway.askPort, { headers: { ...asked, [name]: 'a' } })
    expect([got.status, got.json.detail]).toEqual([400, expect.stringContaining(name)])
  },
)

it('forwards and counts a field of callers that is dropped without callerHeaders', async () => {
  const gateway = await startLogging(
    yaml({
      data: data.url,
      upstream: 'callerHeaders: [X-Client-Id]',
      limits: 'limits: { counted: { per: ["header:x-client-id"], limit: 3, window: 1m } }',
      routes: `routes:
  - { match: "/identity/*", upstream: identity, authenticate: none }
  - { match: "/*", upstream: data, authenticate: none, limits: [counted] }`,
    }).replace('level: silent', 'level: debug'),
  )
  const send = (path: string, headers: Fields) => call(gateway.port, { path, headers })
  const statuses: number[] = []
  for (let i = 0; i < 4; i++)
    statuses.push((await send('/x', { 'X-Client-Id': 'a', Connection: 'x-client-id' })).status)
  expect(statuses).toEqual([200, 200, 200, 429])
  expect(data.seen.at(-1)!.headers['x-client-id']).toBe('a')
  expect((await send('/x', { 'X-Client-Id': 'b', X_Client_Id: 'a' })).status).toBe(200)
  expect(data.seen.at(-1)!.rawHeaders.filter((name) => /client.id/i.test(name))).toEqual(['x-client-id'])
  await send('/identity/x', { 'X-Client-Id': 'a', 'X-Gift-Certificate': 'b' })
  expect(data.seen.at(-1)!.headers).not.toHaveProperty('x-client-id')
  const dropped = () => gateway.lines().filter(({ msg }) => msg === 'request field dropped')
  await until('three dropped fields', () => dropped().length === 3)
  expect(dropped().map(({ level, upstream, field }) => [level, upstream, field])).toEqual([
    ['debug', 'data', 'x_client_id'],
    ['debug', 'identity', 'x-client-id'],
    ['debug', 'identity', 'x-gift-certificate'],
  ])
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  expect(body).toMatch(/^sluice_request_fields_dropped_total\{upstream="identity"\} 2$/m)
})
