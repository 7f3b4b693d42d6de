import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { call, yaml } from '../helpers/gateway.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const ROUTES = `routes:
  - { match: "GET /v3/rate-limits", respond: limits, authenticate: bearer }
  - { match: "/mine/*", upstream: data, authenticate: bearer, limits: [users] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }
`

let data: TestUpstream
let first: TestIssuer
let second: TestIssuer
let gateway: ServingProcess
beforeAll(async () => {
  data = await startUpstream()
  ;[first, second] = await Promise.all([
    startIssuer({ algorithms: ['ES256'] }),
    startIssuer({ algorithms: ['ES256'] }),
  ])
})
afterAll(() => Promise.all([data.close(), first.close(), second.close()]))
beforeEach(async () => {
  const issuer = ({ issuer, audience, jwksUri }: TestIssuer) =>
    `  - { issuer: "${issuer}", audience: "${audience}", jwks: "${jwksUri}" }`
  gateway = await serving(
    yaml({
      data: data.url,
      tokens: ['tokens:', issuer(first), issuer(second)].join('\n'),
      limits: `limits:
  requests: { per: [client], limit: 3, window: 1h }
  users: { per: [user], limit: 1, window: 1h }`,
      routes: ROUTES,
      more: `clients:
  - { id: vip, limits: { requests: { limit: 5000 } } }
  - { id: acme, issuer: "${second.issuer}", limits: { requests: { limit: 7 } } }`,
    }),
  )
})
afterEach(() => gateway.kill())

const send = (issuer: TestIssuer, client: string, path = '/x') =>
  call(gateway.port, { path, token: issuer.token({ client_id: client, sub: 'joe' }) })
const left = async (issuer: TestIssuer, client: string): Promise<string> => {
  const { status, headers } = await send(issuer, client)
  return `${status}: ${String(headers['x-ratelimit-remaining'])} of ${String(headers['x-ratelimit-limit'])}`
}

describe('clients of several issuers', () => {
  it('with the same id are different clients, with their own calls and limits', async () => {
    expect(await left(second, 'shared')).toBe('200: 2 of 3')
    for (let i = 0; i < 2; i++) await send(second, 'shared')
    expect(await left(second, 'shared')).toBe('429: 0 of 3')
    expect(await left(first, 'shared')).toBe('200: 2 of 3')
    expect(await left(first, 'vip')).toBe('200: 4999 of 5000')
    expect(await left(second, 'vip')).toBe('200: 2 of 3')
    expect(await left(second, 'acme')).toBe('200: 6 of 7')
    expect(await left(first, 'acme')).toBe('200: 2 of 3')
  })

  it('cannot impersonate each other by an id that contains an issuer', async () => {
    for (let i = 0; i < 3; i++) await send(second, 'shared')
    expect(await left(first, `shared@${second.issuer}`)).toBe('200: 2 of 3')
    expect(await left(first, `acme@${second.issuer}`)).toBe('200: 2 of 3')
    expect(await left(first, `shared@${second.issuer}@${first.issuer}`)).toBe('200: 2 of 3')
  })

  it('have their own users', async () => {
    expect((await send(first, 'a', '/mine/x')).status).toBe(200)
    expect((await send(first, 'b', '/mine/x')).status).toBe(429)
    expect((await send(second, 'a', '/mine/x')).status).toBe(200)
    expect((await send(second, 'b', '/mine/x')).status).toBe(429)
  })

  it('have an issuer in their names for callers, operators and the log, except those of the first issuer', async () => {
    await send(second, 'acme')
    const answer = await send(second, 'acme', '/v3/rate-limits')
    expect(answer.json.limits).toMatchObject([{ name: 'requests', limit: 7, remaining: 6 }])
    const name = `acme@${second.issuer}`
    const path = `/limits/${encodeURIComponent(name)}`
    expect((await call(gateway.adminPort, { path })).json).toMatchObject({
      caller: `client:${name}`,
      limits: [{ name: 'requests', limit: 7, remaining: 6 }],
    })
    await send(first, 'acme')
    expect((await call(gateway.adminPort, { path: '/limits/acme' })).json).toMatchObject({
      caller: 'client:acme',
      limits: [{ key: 'sluice:{acme}:requests', limit: 3, remaining: 2 }],
    })
    expect((await call(gateway.adminPort, { path, method: 'DELETE' })).json).toEqual({
      caller: `client:${name}`,
      freed: 1,
    })
    expect(await left(second, 'acme')).toBe('200: 6 of 7')
    expect(await left(first, 'acme')).toBe('200: 1 of 3')
    const logged = () =>
      gateway.lines().flatMap(({ msg, path, client }) => (msg === 'request' && path === '/x' ? [client] : []))
    await until('the log', () => logged().length === 4)
    expect(logged()).toEqual([name, 'acme', name, 'acme'])
  })
})
