import { describe, expect, it } from 'vitest'
import {
  FORWARD_AUTH_PROXIES,
  type ForwardAuthProxy,
  replyForNginx,
} from '../../src/downstream/forward-auth.ts'
import { answerIn, askedBy } from '../helpers/asked-requests.ts'
import {
  call,
  type Call,
  type Settings,
  startGateway,
  type TestGateway,
  token,
  untilReady,
} from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The rest of `scenarios/forward-auth.yaml`. */

const data = await startUpstream()
const ROUTES = [
  { match: '/open/*', authenticate: 'none' },
  { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
]

const start = (from: ForwardAuthProxy, settings: Partial<Settings> = {}) =>
  startGateway({ data: data.url, routes: ROUTES, more: { forwardAuth: { port: 0, from } }, ...settings })

/** Asks about a call as a proxy does. Returns the answer with the status and the body, which nginx gets in fields. */
async function ask({ askPort }: TestGateway, from: ForwardAuthProxy, question: Call) {
  const got = await call(askPort, askedBy(from, question))
  return { headers: got.headers, ...answerIn(got) }
}

describe.each(FORWARD_AUTH_PROXIES)('%s', (from) => {
  it('gets 503 under onOutage: deny while Redis is away, only for limited routes, and 200 again after it', async () => {
    const redis = await startRedis()
    const gateway = await start(from, { store: { redis: { url: redis.url }, onOutage: 'deny' } })
    const statusOf = async (question: Call) => (await ask(gateway, from, question)).status
    await untilReady(gateway)
    const bearer = await token('ann')
    const limited = { path: '/v3/a', token: bearer }
    expect(await statusOf(limited)).toBe(200)
    await redis.kill()
    await until('it refuses', async () => (await statusOf(limited)) === 503)
    const refused = await ask(gateway, from, limited)
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect(JSON.parse(refused.body)).toMatchObject({ status: 503 })
    expect(refused.headers).not.toHaveProperty('x-sluice-client')
    // A token is still asked for, and a route without a limit needs no Redis.
    expect([await statusOf({ path: '/v3/a' }), await statusOf({ path: '/open/a' })]).toEqual([401, 200])
    expect((await call(gateway.adminPort, { path: '/readyz' })).status).toBe(200)
    await redis.start()
    await until('it admits', async () => (await statusOf(limited)) === 200)
  })

  it('gets the names of the fields that it must send', async () => {
    const { askPort } = await start(from)
    const headers = { 'X-Forwarded-Proto': 'https' }
    const missing = answerIn(await call(askPort, { path: '/open/a', headers }))
    const fields = {
      nginx: 'x-original-method, x-original-uri, x-forwarded-for',
      envoy: 'x-forwarded-for',
    }[from as string]
    expect(missing.status).toBe(400)
    expect(JSON.parse(missing.body).detail).toBe(
      `The proxy that asks must send ${fields ?? 'x-forwarded-method, x-forwarded-host, x-forwarded-uri, x-forwarded-for'}.`,
    )
  })
})

it.each(['GET","client":"victim","x":"', 'G"ET', 'GET\tx', 'GET /', 'GÉT', 'G(T', 'A'.repeat(33)])(
  'a method that a proxy reports and that is none is refused: %s',
  async (method) => {
    for (const from of ['caddy', 'nginx'] as const) {
      const refused = await ask(await start(from), from, { method, path: '/open/a' })
      expect(refused.status).toBe(400)
      const field = from === 'nginx' ? 'x-original-method' : 'x-forwarded-method'
      expect(refused.body).toContain(`The proxy that asks must send a valid ${field}.`)
    }
  },
)

it('a token bound to a certificate is accepted with the certificate that the proxy sends', async () => {
  const gateway = await start('caddy')
  const { der, thumbprint } = makeCertificate()
  const bound = await token('ann', { cnf: { 'x5t#S256': thumbprint } })
  const headers = { 'Client-Cert': `:${der.toString('base64')}:` }
  expect((await ask(gateway, 'caddy', { path: '/v3/a', token: bound, headers })).status).toBe(200)
  expect((await ask(gateway, 'caddy', { path: '/v3/a', token: bound })).status).toBe(401)
})

it.each([
  ['JSON', '{\n"a":"grö"}', '{ "a":"gr\\u00f6"}'],
  ['text', 'grö\nt', 'gr  t'],
])('nginx gets a body of %s without characters that a field cannot hold', (_, body, field) => {
  const reply = replyForNginx({ status: 429, checked: {}, headers: '', body })
  expect(reply.headers.endsWith(`\r\nX-Sluice-Body: ${field}`)).toBe(true)
})

it('answers all questions of a proxy over one connection', async () => {
  const { askPort } = await start('haproxy')
  const fields = [
    'X-Forwarded-Method: GET',
    'X-Forwarded-Host: api.example.com',
    'X-Forwarded-Uri: /open/a',
    'X-Forwarded-For: 203.0.113.7',
  ]
  const question = ['GET / HTTP/1.1', 'Host: sluice', ...fields, '', ''].join('\r\n')
  const { text } = await raw(askPort, question.repeat(50), (got) => statuses(got).length === 50)
  expect(statuses(text)).toEqual(Array.from({ length: 50 }, () => 200))
  expect(text).not.toMatch(/^connection: close/im)
})
