import { beforeAll, describe, expect, it } from 'vitest'
import { replyForNginx } from '../../src/downstream/forward-auth.ts'
import { FORWARD_AUTH_PROXIES, type ForwardAuthProxy } from '../../src/downstream/forward-auth.ts'
import {
  call,
  type Got,
  ISSUER,
  startGateway,
  type TestGateway,
  token,
  untilReady,
} from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOST = 'api.example.com'
let data: TestUpstream
beforeAll(async () => void (data = await startUpstream()))

let gateway: TestGateway

const ROUTES = [
  { match: 'POST id.example.com/oidc/request', upstream: 'identity', authenticate: 'par' },
  { match: 'GET id.example.com/oidc/auth', upstream: 'identity', authenticate: 'authorization' },
  { match: 'id.example.com/*', upstream: 'identity', authenticate: 'none' },
  { match: 'GET /v3/rate-limits', respond: 'limits', authenticate: 'bearer' },
  { match: 'GET /health', respond: 'health', authenticate: 'none' },
  { match: '/both/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  { match: '/open/*', authenticate: 'none', limits: ['addresses'] },
  { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
]
const start = async (from: ForwardAuthProxy) =>
  void (gateway = await startGateway({
    data: data.url,
    routes: ROUTES,
    trustedProxies: ['10.0.0.0/8'],
    limits: {
      requests: { per: ['client'], limit: 2, window: '1m' },
      addresses: { per: ['ip'], limit: 1, window: '1m' },
    },
    more: { par: { issuer: ISSUER }, forwardAuth: { port: 0, from }, cors: { origins: ['*'] } },
  }))

interface Question {
  readonly method?: string
  readonly path: string
  readonly host?: string
  readonly ip?: string
  readonly token?: string
  readonly headers?: Record<string, string>
}

/** The requests by which proxies ask, as their documentation and source say, besides the caller's own fields. */
const EXCHANGES: Record<
  ForwardAuthProxy,
  (question: Required<Omit<Question, 'token'>>) => Parameters<typeof call>[1]
> = {
  // pkg/middlewares/auth/forward.go of Traefik: always GET, without a body.
  traefik: ({ method, path, host, ip, headers }) => ({
    path: '/',
    headers: {
      ...headers,
      'X-Forwarded-Method': method,
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-Host': host,
      'X-Forwarded-Uri': path,
      'X-Forwarded-For': ip,
    },
  }),
  caddy: (question) => EXCHANGES.traefik(question),
  haproxy: (question) => EXCHANGES.traefik(question),
  nginx: ({ method, path, host, ip, headers }) => ({
    path: '/',
    headers: {
      ...headers,
      Host: host,
      'X-Original-Method': method,
      'X-Original-URI': path,
      'X-Forwarded-For': ip,
      'X-Forwarded-Proto': 'https',
    },
  }),
  // The ext_authz filter of Envoy: the request's own method, host and path, and Content-Length: 0.
  envoy: ({ method, path, host, ip, headers }) => ({
    method,
    path,
    headers: {
      ...headers,
      Host: host,
      'Content-Length': '0',
      'X-Forwarded-For': ip,
      'X-Forwarded-Proto': 'https',
      'X-Envoy-Internal': 'true',
    },
  }),
}

function ask(from: ForwardAuthProxy, { token, headers = {}, ...question }: Question): Promise<Got> {
  const authorization = token === undefined ? {} : { Authorization: `Bearer ${token}` }
  const whole = {
    method: 'GET',
    host: HOST,
    ip: '203.0.113.7',
    ...question,
    headers: { ...headers, ...authorization },
  }
  return call(gateway.askPort, EXCHANGES[from](whole))
}

/** Returns the status of an answer; nginx gets it in a field. */
const statusIn = ({ status, headers }: Got) => Number(headers['x-sluice-status'] ?? status)
const statusAsked = async (from: ForwardAuthProxy, question: Question) => statusIn(await ask(from, question))

describe.each(FORWARD_AUTH_PROXIES)('%s', (from) => {
  it('gets no field of CORS, and no answer in place of the backend', async () => {
    await start(from)
    const headers = { Origin: 'https://app.example.com', 'Access-Control-Request-Method': 'GET' }
    for (const method of ['OPTIONS', 'GET']) {
      const answer = await ask(from, { method, path: '/v3/a', headers })
      expect(statusIn(answer)).toBe(401)
      expect(answer.headers).not.toHaveProperty('vary')
      expect(answer.headers).not.toHaveProperty('access-control-allow-origin')
    }
    expect(await statusAsked(from, { path: '/health' })).toBe(404)
  })

  it('gets a 403 for credentials that came over plain HTTP, as it reports', async () => {
    await start(from)
    const why = 'Send credentials over HTTPS only, and replace these: they were sent in the clear.'
    const askPlain = (path: string, authorization?: string) => {
      const headers = authorization === undefined ? {} : { Authorization: authorization }
      const question = EXCHANGES[from]({ method: 'GET', path, host: HOST, ip: '203.0.113.7', headers })
      return call(gateway.askPort, {
        ...question,
        headers: { ...question?.headers, 'X-Forwarded-Proto': 'http' },
      })
    }
    for (const credentials of [`Bearer ${await token('ann')}`, 'Bearer forged', 'Basic YTpi']) {
      for (const path of ['/v3/a', '/open/a']) {
        const got = await askPlain(path, credentials)
        expect([statusIn(got), got.headers['x-sluice-body'] ?? got.body]).toEqual([
          403,
          expect.stringContaining(why),
        ])
      }
    }
    expect(statusIn(await askPlain('/open/a'))).toBe(200)
  })

  it('gets 200 with the limit and the client, then the refusal', async () => {
    await start(from)
    const bearer = await token('ann')
    const before = data.seen.length
    const passed = await ask(from, { method: 'POST', path: '/v3/a?x=%2F', token: bearer })
    expect([passed.status, passed.body]).toEqual([200, ''])
    expect(passed.headers).toMatchObject({
      'x-ratelimit-limit': '2',
      'x-ratelimit-remaining': '1',
      'x-sluice-client': 'ann',
      'cache-control': 'no-store',
      'content-length': '0',
    })
    // The gateway itself counts the calls that it forwards together with those.
    expect(
      (await call(gateway.port, { path: '/both/a', token: bearer })).headers['x-ratelimit-remaining'],
    ).toBe('0')
    const refused = await ask(from, { method: 'HEAD', path: '/v3/a', token: bearer })
    expect([statusIn(refused), refused.headers['x-ratelimit-remaining']]).toEqual([429, '0'])
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect(data.seen.length).toBe(before + 1)
  })

  it('gets the refusals of the gateway', async () => {
    await start(from)
    const statusOf = (question: Question) => statusAsked(from, question)
    expect(await statusOf({ path: '/v3/a' })).toBe(401)
    expect(await statusOf({ path: '/v3/a', token: 'none' })).toBe(401)
    expect(await statusOf({ path: '/v3/%2e%2e/open/a' })).toBe(400)
    expect(await statusOf({ path: '/other' })).toBe(404)
    expect(await statusOf({ path: '/open/a', host: 'two hosts' })).toBe(400)
    expect(await statusOf({ path: '/v3/a', method: 'TRACE' })).toBe(405)
  })

  it('gets 503 under onOutage: deny while Redis is away, only for limited routes, and 200 again after it', async () => {
    const redis = await startRedis()
    gateway = await startGateway({
      data: data.url,
      store: { redis: { url: redis.url }, onOutage: 'deny' },
      routes: [
        { match: '/open/*', authenticate: 'none' },
        { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
      ],
      more: { forwardAuth: { port: 0, from } },
    })
    await untilReady(gateway)
    const bearer = await token('ann')
    const limited = { path: '/v3/a', token: bearer }
    expect(await statusAsked(from, limited)).toBe(200)
    await redis.kill()
    await until('it refuses', async () => (await statusAsked(from, limited)) === 503)
    const refused = await ask(from, limited)
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect(JSON.parse(String(refused.headers['x-sluice-body'] ?? refused.body))).toMatchObject({
      status: 503,
    })
    expect(refused.headers).not.toHaveProperty('x-sluice-client')
    // A token is still asked for, and a route without a limit needs no Redis.
    expect([
      await statusAsked(from, { path: '/v3/a' }),
      await statusAsked(from, { path: '/open/a' }),
    ]).toEqual([401, 200])
    expect((await call(gateway.adminPort, { path: '/readyz' })).status).toBe(200)
    await redis.start()
    await until('it admits', async () => (await statusAsked(from, limited)) === 200)
  })

  it('gets 404 for endpoints whose bodies and redirects the gateway checks, and for limits that it answers', async () => {
    await start(from)
    const statusOf = (question: Question) => statusAsked(from, question)
    const host = 'id.example.com'
    expect(await statusOf({ method: 'POST', host, path: '/oidc/request' })).toBe(404)
    expect(await statusOf({ host, path: '/oidc/auth?client_id=a' })).toBe(404)
    expect(await statusOf({ host, path: '/oidc/certs' })).toBe(200)
    expect(await statusOf({ path: '/v3/rate-limits', token: await token('ann') })).toBe(404)
  })

  it('is believed on the address of the caller, behind other trusted proxies too', async () => {
    await start(from)
    const statusOf = (ip: string) => statusAsked(from, { path: '/open/a', ip })
    expect(await statusOf('203.0.113.1')).toBe(200)
    expect(await statusOf('203.0.113.1')).toBe(429)
    expect(await statusOf('203.0.113.1, 203.0.113.2, 10.1.1.1')).toBe(200)
    expect(await statusOf('203.0.113.2')).toBe(429)
  })

  it('gets the names of the fields that it must send', async () => {
    await start(from)
    const missing = await call(gateway.askPort, {
      path: '/open/a',
      headers: { 'X-Forwarded-Proto': 'https' },
    })
    const fields = {
      nginx: 'x-original-method, x-original-uri, x-forwarded-for',
      envoy: 'x-forwarded-for',
    }[from as string]
    expect(statusIn(missing)).toBe(400)
    expect(JSON.parse(String(missing.headers['x-sluice-body'] ?? missing.body)).detail).toBe(
      `The proxy that asks must send ${fields ?? 'x-forwarded-method, x-forwarded-host, x-forwarded-uri, x-forwarded-for'}.`,
    )
  })
})

it.each(['GET","client":"victim","x":"', 'G"ET', 'GET\tx', 'GET /', 'GÉT', 'G(T', 'A'.repeat(33)])(
  'a method that a proxy reports and that is none is refused: %s',
  async (method) => {
    for (const from of ['caddy', 'nginx'] as const) {
      await start(from)
      const refused = await ask(from, { method, path: '/open/a' })
      expect(statusIn(refused)).toBe(400)
      const field = from === 'nginx' ? 'x-original-method' : 'x-forwarded-method'
      expect(String(refused.headers['x-sluice-body'] ?? refused.body)).toContain(
        `The proxy that asks must send a valid ${field}.`,
      )
    }
  },
)

it('a token bound to a certificate is accepted with the certificate that the proxy sends', async () => {
  await start('caddy')
  const { der, thumbprint } = makeCertificate()
  const bound = await token('ann', { cnf: { 'x5t#S256': thumbprint } })
  const headers = { 'Client-Cert': `:${der.toString('base64')}:` }
  expect((await ask('caddy', { path: '/v3/a', token: bound, headers })).status).toBe(200)
  expect((await ask('caddy', { path: '/v3/a', token: bound })).status).toBe(401)
})

it('an id of a client that a field cannot hold is percent-encoded, and unknown clients give an empty field', async () => {
  await start('traefik')
  const encoded = await ask('traefik', { path: '/v3/a', token: await token('größe 100%') })
  expect(encoded.headers['x-sluice-client']).toBe('gr%C3%B6%C3%9Fe%20100%25')
  expect((await ask('traefik', { path: '/open/a' })).headers['x-sluice-client']).toBe('')
})

it('nginx gets each refusal as 401 or 403, with the status and the body in fields', async () => {
  await start('nginx')
  for (const [path, status, sent] of [
    ['/v3/a', 401, 401],
    ['/other', 404, 403],
    ['/v3%2Fa', 400, 403],
  ] as const) {
    const refused = await ask('nginx', { path })
    expect([refused.status, refused.body, refused.headers['content-length']]).toEqual([sent, '', '0'])
    expect(refused.headers['x-sluice-status']).toBe(String(status))
    expect(JSON.parse(String(refused.headers['x-sluice-body']))).toMatchObject({ status })
  }
})

it.each([
  ['JSON', '{\n"a":"grö"}', '{ "a":"gr\\u00f6"}'],
  ['text', 'grö\nt', 'gr  t'],
])('nginx gets a body of %s without characters that a field cannot hold', (_, body, field) => {
  const reply = replyForNginx({ status: 429, checked: {}, headers: '', body })
  expect(reply.headers.endsWith(`\r\nX-Sluice-Body: ${field}`)).toBe(true)
})

it('nginx gets several challenges in one field, because it reads only one', async () => {
  await start('nginx')
  const { rawHeaders } = await ask('nginx', { path: '/v3/a' })
  expect(rawHeaders.filter((name) => name === 'WWW-Authenticate').length).toBe(1)
  expect(rawHeaders[rawHeaders.indexOf('WWW-Authenticate') + 1]).toMatch(/^Bearer .*, DPoP /)
})

it('answers all questions of a proxy over one connection', async () => {
  await start('haproxy')
  const fields = [
    'X-Forwarded-Method: GET',
    'X-Forwarded-Host: id.example.com',
    'X-Forwarded-Uri: /oidc/certs',
    'X-Forwarded-For: 203.0.113.7',
  ]
  const question = ['GET / HTTP/1.1', 'Host: sluice', ...fields, '', ''].join('\r\n')
  const { text } = await raw(gateway.askPort, question.repeat(50), (got) => statuses(got).length === 50)
  expect(statuses(text)).toEqual(Array.from({ length: 50 }, () => 200))
  expect(text).not.toMatch(/^connection: close/im)
})

it('a route without an upstream is not served to callers', async () => {
  await start('envoy')
  expect((await call(gateway.port, { path: '/open/a' })).status).toBe(404)
  expect((await call(gateway.port, { path: '/v3/a', token: await token('ann') })).status).toBe(404)
})
