import { beforeAll, describe, expect, it } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import type { Explained } from '../../../src/admin/requests/explained.ts'
import type { RequestLine } from '../../../src/admin/requests/operator-api.ts'
import { explain } from '../../../src/admin/requests/explain.ts'
import { parseQuestion } from '../../../src/admin/requests/parsed-question.ts'
import { call, ISSUER, startGateway, type TestGateway, token, yaml } from '../../helpers/gateway.ts'
import { startUpstream, type TestUpstream } from '../../helpers/upstream.ts'
import { configFile } from '../../commands/replay/logs.ts'
import { fileOf } from '../../commands/run.ts'

async function explained(
  text: string,
  file: string,
  asker: Partial<RequestLine> = {},
  at = '2026-11-20T10:00:00Z',
): Promise<Explained> {
  return explain((await loadConfig({ file })).config, { request: text, at, ...asker }).explained
}
const readQuestion = (request: string, host?: string) =>
  parseQuestion({ request, ...(host !== undefined && { host }) }).request

describe('a question', () => {
  it.for([
    ['POST /v3/sync/abc', { method: 'POST', host: undefined, target: '/v3/sync/abc' }],
    ['get  /x?y=z', { method: 'GET', host: undefined, target: '/x?y=z' }],
    ['id.example.com/oidc', { method: 'GET', host: 'id.example.com', target: '/oidc' }],
    ['POST https://a.example:8443?x', { method: 'POST', host: 'a.example:8443', target: '/?x' }],
  ] as const)('a question is a method, a host and a path: %j', ([text, question]) => {
    expect(readQuestion(text)).toEqual(question)
  })

  it('accepts its host as a separate value, unless they differ', () => {
    expect(readQuestion('/x', 'a.example')).toMatchObject({ host: 'a.example' })
    expect(readQuestion('A.example/x', 'a.example')).toMatchObject({ host: 'A.example' })
    expect(() => readQuestion('b.example/x', 'a.example')).toThrow(
      'Which host, "b.example" or "a.example"? Give one of them.',
    )
    for (const method of ['FOO', 'foo', 'X-Y']) {
      expect(() => readQuestion(`${method} /x`)).toThrow(`"${method}" is not an HTTP method`)
    }
    expect(readQuestion('M-SEARCH /x')).toMatchObject({ method: 'M-SEARCH', target: '/x' })
    for (const text of ['', 'POST', 'sync']) {
      expect(() => readQuestion(text)).toThrow(/^Which request\?/)
    }
  })
})

describe('explain of limits that read the request', () => {
  const file = configFile(
    `  consents: { per: [client, "claim:consent", "header:X-Org"], limit: { claim: n, default: 4 }, window: { calendar: day, timezone: Europe/Lisbon } }
  unattended: { per: [client], limit: 4, window: 1h, unless: { header: psu-ip-address, is: ip }, when: [{ method, is: GET }, { claim: tier, is: [a, b] }] }
  optional: { per: [client, "claim:consent", token], limit: 1, window: 1h, missing: skip }`,
    {
      routes:
        '  - { match: "/*", upstream: data, authenticate: bearer, limits: [consents, unattended, optional] }',
    },
  )
  const limitsOf = async (text: string, asker: Partial<RequestLine>) =>
    (await explained(text, file, { client: 'acme', ...asker })).limits.map(
      ({ name, key, lacking, leftOut, limit }) => [name, key ?? lacking, leftOut, limit],
    )

  it('names the condition or the missing part that leaves a limit out', async () => {
    expect(await limitsOf('/x', {})).toEqual([
      ['consents', ['claim:consent', 'header:x-org'], null, 4],
      ['unattended', 'sluice:{acme}:unattended', 'when claim tier is a or b', 4],
      ['optional', ['claim:consent', 'token'], 'without claim:consent', 1],
    ])
    expect(await limitsOf('POST /x', {})).toContainEqual(
      expect.arrayContaining(['when method is GET or HEAD']),
    )
  })

  it('takes claims and header fields, which give keys and values', async () => {
    const claims = '{"consent":"c1","n":9,"tier":["b"]}'
    const attended = { claims, headers: '{"PSU-IP-Address":"192.0.2.1","x-org":"Acme"}' }
    expect(await limitsOf('/x', attended)).toEqual([
      ['consents', 'sluice:{acme}:consents:c1:acme…822b33ad', null, 9],
      ['unattended', 'sluice:{acme}:unattended', 'unless header psu-ip-address is ip', 4],
      ['optional', ['token'], null, 1],
    ])
    expect(await limitsOf('/x', { claims })).toContainEqual([
      'unattended',
      'sluice:{acme}:unattended',
      null,
      4,
    ])
  })

  it('explain of limits that read the request does not leave a limit out for a malformed part, which the gateway refuses', async () => {
    const found = await limitsOf('/x', { claims: '{"consent":["c1"]}' })
    expect(found[2]).toEqual(['optional', ['claim:consent', 'token'], null, 1])
  })

  it.each(['[]', '1', 'null', '{'])(
    'requires claims and header fields to be a JSON object: %s',
    async (text) => {
      for (const name of ['claims', 'headers'])
        expect(() => parseQuestion({ request: '/x', [name]: text })).toThrow(
          `The ${name} must be a JSON object`,
        )
    },
  )
})

describe('explain', () => {
  const LIMITS = `  requests:
    per: [client]
    limit: 10
    window: 1m
    changes:
      - { announced: 2026-11-01T00:00:00Z, from: 2026-12-01T00:00:00Z, limit: 20 }
      - { announced: 2026-11-01T00:00:00Z, from: 2027-01-01T00:00:00Z, limit: 30 }
  sync: { per: [client, connection], limit: 1, window: 5s }
  persons: { per: [user, ip], limit: 3, window: 1s, shadow: true }`
  const ROUTES = `  - { match: "id.example.com/*", upstream: data, authenticate: none }
  - { match: "POST /oidc/request", upstream: data, authenticate: par }
  - { match: "GET /limits", respond: limits, authenticate: bearer }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync], scope: [write], timeout: 5s, maxBody: 1kB }
  - { match: "GET /v3/*", upstream: data, authenticate: bearer, limits: [requests, persons] }`
  const MORE = `par: { issuer: https://id.example.com/oidc }
clients:
  - { id: own, limits: { requests: { limit: 5, window: 10s, until: 2026-12-15T00:00:00Z }, sync: { limit: 0 } } }`
  const file = configFile(LIMITS, { routes: ROUTES, more: MORE })

  it('names the route that matches a request, its result, and why no earlier one matches', async () => {
    expect(await explained('POST /Sync/%61Bc?x=1', file, { client: 'acme' })).toMatchObject({
      at: '2026-11-20T10:00:00.000Z',
      request: { method: 'POST', host: 'localhost', target: '/Sync/%61Bc?x=1' },
      path: '/Sync/aBc',
      refusal: null,
      route: {
        ...{ match: 'POST /sync/:connection', index: 3, params: { connection: 'aBc' } },
        ...{ authenticate: 'bearer', issuers: [ISSUER], scope: ['write'], respond: null },
        ...{ upstream: 'data', origins: ['http://data.internal:4000'], maxBody: 1024, timeoutMs: 5000 },
      },
      client: {
        ...{ id: 'acme', name: null, listed: false, plan: null, keys: null, mustBeListed: false },
        ...{ requestObjectSigningAlg: null, authentication: null, pushed: null },
      },
      limits: [
        {
          ...{ name: 'requests', limit: 10, windowMs: 60_000, shadow: false, per: ['client'], used: null },
          ...{ key: 'sluice:{acme}:requests', lacking: [], leftOut: null },
          next: { announced: '2026-11-01T00:00:00.000Z', from: '2026-12-01T00:00:00.000Z', limit: 20 },
        },
        { name: 'sync', windowMs: 5000, per: ['client', 'connection'], key: 'sluice:{acme}:sync:abc' },
      ],
      passedOver: [
        { match: 'id.example.com/*', because: 'matches another host than localhost' },
        { match: 'POST /oidc/request', because: 'matches another path' },
        { match: 'GET /limits', because: 'matches another path' },
      ],
    })
  })

  it.for([
    ['2026-11-30T23:59:59.999Z', 'acme', 10, 'limit', 'the limit of the file', 20],
    ['2026-12-01T00:00:00Z', 'acme', 20, 'change', 'changed at 2026-12-01T00:00:00.000Z', 30],
    ['2027-01-01T00:00:00Z', 'acme', 30, 'change', 'changed at 2027-01-01T00:00:00.000Z', undefined],
    [
      '2026-11-20T00:00:00Z',
      'own',
      5,
      'client',
      "the client's own limit of the file, until 2026-12-15T00:00:00.000Z",
      20,
    ],
    [
      '2026-12-15T00:00:00Z',
      'own',
      20,
      'change',
      "changed at 2026-12-01T00:00:00.000Z; the client's own limit ended at 2026-12-15T00:00:00.000Z",
      30,
    ],
  ] as const)(
    'names the rule that decides a limit at %s for %s',
    async ([at, client, limit, decidedBy, because, next]) => {
      const { limits } = await explained('POST /sync/a', file, { client }, at)
      expect(limits[0]).toMatchObject({ limit, decidedBy, because, windowMs: limit === 5 ? 10_000 : 60_000 })
      expect(limits[0]!.next?.limit).toBe(next)
      expect(limits[1]).toMatchObject(
        client === 'own'
          ? { limit: 0, decidedBy: 'client', because: "the client's own limit of the file", next: null }
          : { limit: 1, decidedBy: 'limit', next: null },
      )
    },
  )

  it('compares segments as the router does', async () => {
    const spelled = configFile(LIMITS, {
      routes: `  - { match: "GET,POST x.example/Caf%C3%A9/:id/X", upstream: data, authenticate: none }
  - { match: "POST /sync/:connection", upstream: data, authenticate: none }
  - { match: "/stra%C3%9Fe/*", upstream: data, authenticate: none }`,
    })
    expect(await explained('/STRASSE/x', spelled)).toMatchObject({ route: { index: 2 } })
  })

  it('uses a listed host by default, and refuses a host that is not served', async () => {
    const listed = configFile(LIMITS, {
      routes: ROUTES,
      more: `${MORE}\nlisten: { hosts: [id.example.com, api.example.com] }`,
    })
    expect(await explained('POST /sync/a', listed, { client: 'acme' })).toMatchObject({
      request: { host: 'api.example.com' },
      refusal: null,
      route: { match: 'POST /sync/:connection' },
    })
    expect(await explained('POST evil.example/sync/a', listed)).toMatchObject({
      refusal: { status: 400, message: 'The Host header names a host that is not served here.' },
    })
    const narrow = configFile(LIMITS, {
      routes:
        '  - { match: "/v3/*", upstream: data, authenticate: bearer, limits: [requests] }\n  - { match: "id.example.com/x", upstream: data, authenticate: none }',
      more: 'listen: { hosts: [api.example.com] }',
    })
    expect((await explained('id.example.com/v3/x', narrow)).passedOver[0]).toEqual({
      match: '/v3/*',
      because: 'matches another host than id.example.com',
    })
  })

  it('refuses a path parameter that is not of its kind', async () => {
    const kinds = configFile(LIMITS, { routes: ROUTES, more: `${MORE}\nparameters: { connection: integer }` })
    expect(await explained('POST /sync/012', kinds, { client: 'acme' })).toMatchObject({
      refusal: {
        status: 400,
        message:
          'The connection in the path must be a whole number without sign and leading zeros, 128 characters at most.',
      },
      route: { match: 'POST /sync/:connection' },
      limits: [],
    })
    expect(await explained('POST /sync/12', kinds, { client: 'acme' })).toMatchObject({ refusal: null })
  })

  it('names the parts of a key that the question does not contain', async () => {
    const without = await explained('/v3/x', file)
    expect(without.limits).toMatchObject([
      { key: null, lacking: ['client'], limit: 10 },
      { key: null, lacking: ['user', 'ip'], shadow: true },
    ])
    const asker = { client: 'a b', user: 'u', ip: '2001:db8::1' }
    expect((await explained('/v3/x', file, asker)).limits).toMatchObject([
      { key: 'sluice:{a%20b}:requests' },
      { key: 'sluice:{u}:persons:2001-db8-0-0/64' },
    ])
  })

  it('explains routes with respond, without authentication and with par', async () => {
    expect(await explained('/limits', file)).toMatchObject({
      route: { upstream: null, origins: [], respond: 'limits', timeoutMs: null },
      limits: [],
    })
    expect(await explained('id.example.com/x', file)).toMatchObject({
      route: { index: 0, authenticate: 'none' },
      passedOver: [],
    })
    expect(await explained('POST /oidc/request', file)).toMatchObject({
      route: { authenticate: 'par' },
      limits: [],
    })
  })

  const ELSEWHERE = 'matches another path'

  it.for([
    ['/v3/../x', 400, 'BadRequest', []],
    ['/elsewhere', 404, 'NotFound', [ELSEWHERE, ELSEWHERE, ELSEWHERE, ELSEWHERE]],
    ['PUT /sync/a', 405, 'MethodNotAllowed', [ELSEWHERE, ELSEWHERE, 'allows POST, not PUT', ELSEWHERE]],
    ['/sync', 404, 'NotFound', [ELSEWHERE, ELSEWHERE, ELSEWHERE, ELSEWHERE]],
    ['/limits/x', 404, 'NotFound', [ELSEWHERE, ELSEWHERE, ELSEWHERE, ELSEWHERE]],
    [
      'PROPFIND id.example.com/x',
      405,
      'MethodNotAllowed',
      ['allows DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, not PROPFIND'],
    ],
    [
      'GET id.example.com/oidc/request',
      405,
      'MethodNotAllowed',
      [
        'matches, but the path belongs to a route with "authenticate: par" or "authorization"',
        'allows POST, not GET',
      ],
    ],
  ] as const)('gives the reason why the gateway refuses %s', async ([text, status, code, reasons]) => {
    const { refusal, route, limits, passedOver } = await explained(text, file)
    expect({ refusal, route, limits }).toMatchObject({ refusal: { status, code }, route: null, limits: [] })
    const elsewhere = 'matches another host than localhost'
    const given = passedOver.map(({ because }) => because).filter((because) => because !== elsewhere)
    expect(given.slice(0, reasons.length)).toEqual(reasons)
  })
})

describe('explain, compared with the gateway', () => {
  let data: TestUpstream
  let gateway: TestGateway
  let file: string
  beforeAll(async () => {
    data = await startUpstream()
    const settings = {
      data: data.url,
      limit: 7,
      more: { clients: [{ id: 'own', limits: { requests: { limit: 3 } } }] },
    }
    file = fileOf(yaml(settings))
    gateway = await startGateway(settings)
  })

  it.for([
    ['GET /transactions', 'own'],
    ['GET /transactions/', 'acme'],
    ['POST /v3/sync/a%3Ab', 'acme'],
    ['POST /V3/sync/a;b', 'acme'],
    ['DELETE /transactions', 'acme'],
    ['GET /nowhere', 'acme'],
    ['GET /oidc/x%7Ey', 'acme'],
    ['GET /v3//x', 'acme'],
    ['GET /v3/global-counterparties', 'acme'],
  ] as const)('predicts the response to %s', async ([text, client]) => {
    const answer = await explained(text, file, { client }, new Date().toISOString())
    const [method, path] = text.split(' ') as [string, string]
    const before = data.seen.length
    const got = await call(gateway.port, { method, path, token: await token(client) })
    if (answer.refusal !== null) {
      expect(got).toMatchObject({ status: answer.refusal.status, json: { code: answer.refusal.code } })
      expect(got.headers['allow']).toBe(answer.refusal.allow?.join(', '))
      expect(data.seen.length).toBe(before)
      return
    }
    expect(got.status).toBe(200)
    expect(data.seen.at(-1)!.url).toBe(answer.request.target)
    expect(got.headers['x-ratelimit-limit']).toBe(answer.limits[0]?.limit.toString())
  })
})
