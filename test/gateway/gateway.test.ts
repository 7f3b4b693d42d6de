import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { deadUrl } from '../helpers/ports.ts'
import { answered, raw, type RawAnswer, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

const data = await startUpstream((request, response, body) => {
  response.writeHead(request.url?.startsWith('/v3/limited') === true ? 429 : 200, {
    'Content-Type': 'application/json',
    ...(request.url === '/v3/limited-silently' ? {} : { 'X-RateLimit-Limit': '3' }),
    'Retry-After': '17',
  })
  response.end(
    request.method === 'HEAD'
      ? undefined
      : JSON.stringify({ digest: createHash('sha256').update(body).digest('hex') }),
  )
})
const identity = await startUpstream((request, response) => {
  response.writeHead(303, [
    'Location',
    'http://elsewhere.example/interaction/1?a=%2F',
    'Set-Cookie',
    'a=1; Path=/interaction/1; Expires=Wed, 01 Jan 2031 00:00:00 GMT',
    'Set-Cookie',
    'b=2; Path=/oidc/auth',
    'X-RateLimit-Limit',
    '77',
  ])
  response.end(request.url)
})
const gateway = await startGateway({ data: data.url, identity: identity.url })

let clients = 0
const newClient = () => `client-${++clients}`

describe('the socket of a request', () => {
  it.each([
    ['that matches no route', 'GET /nowhere', 404],
    ['with an ambiguous target', 'GET /sync/..%2fx', 400],
    ['without a token', 'GET /v3/x', 401],
    ['that is over its limit, refused by the cache or by Redis', 'POST /v3/sync/kept', 429],
  ])('the socket of a request %s stays open', async (_, line, status) => {
    const authorization = status === 429 ? `Authorization: Bearer ${await token('kept')}\r\n` : ''
    const head = `${line} HTTP/1.1\r\nHost: a\r\n${authorization}Content-Length: 0\r\n\r\n`
    const answers: RawAnswer[] = []
    while (answers.length < 3) answers.push(await raw(gateway.port, head, answered))
    expect(statuses(answers.at(-1)!.text)).toEqual([status])
    for (const { text, closed } of answers) {
      expect(text).not.toContain('Connection: close')
      expect(closed).toBe(false)
    }
  })
})

it('a caller without an address, whose socket was reset at once, is not served', async () => {
  const before = identity.seen.length
  for (let i = 0; i < 20; i++) {
    const sockets = Array.from({ length: 10 }, () => connect(gateway.port, '127.0.0.1').on('error', () => {}))
    for (const socket of sockets) {
      socket.write('GET /oidc/reset HTTP/1.1\r\nHost: a\r\n\r\n')
      socket.resetAndDestroy()
    }
    await Promise.all(sockets.map((socket) => once(socket, 'close')))
  }
  expect((await call(gateway.port, { path: '/oidc/reset' })).status).toBe(303)
  const sent = identity.seen.slice(before).map(({ headers }) => headers['x-forwarded-for'])
  expect(new Set(sent)).toEqual(new Set(['127.0.0.1']))
})

describe('the target of a request', () => {
  it('an ambiguous target gets a 400 in the format of the Data API, and is not forwarded', async () => {
    const before = data.seen.length
    const got = await call(gateway.port, { path: '/sync/..%2fx', token: await token(newClient()) })
    expect(got.status).toBe(400)
    expect(got.headers['content-type']).toBe('application/problem+json')
    expect(got.headers['cache-control']).toBe('no-store')
    expect(got.json).toEqual({
      type: 'about:blank',
      title: 'Bad Request',
      status: 400,
      detail: expect.any(String),
      code: 'BadRequest',
      message: 'Bad Request',
      correlationId: expect.any(String),
    })
    expect(data.seen.length).toBe(before)
  })
})

describe('the route of a request', () => {
  it('a refusal on an identity route is JSON as in RFC 6749', async () => {
    const got = await call(gateway.port, {
      path: '/oidc/x',
      method: 'OPTIONS',
      headers: { 'Content-Length': '3' },
      body: 'abc',
    })
    expect(got.status).toBe(400)
    expect(got.headers['content-type']).toBe('application/json')
    expect(got.json).toEqual({ error: 'invalid_request', error_description: expect.any(String) })
  })

  it('an open route is served without a token, and keeps the rate-limit headers of its upstream', async () => {
    const got = await call(gateway.port, { path: '/v3/global-counterparties' })
    expect(got.status).toBe(200)
    expect(got.headers['x-ratelimit-limit']).toBe('3')
  })
})

describe('the token of a request', () => {
  it('a token in the query or in the body is ignored', async () => {
    const body = `access_token=${await token('x')}`
    const headers = { 'Content-Type': 'application/x-www-form-urlencoded' }
    for (const sent of [{ path: `/transactions?${body}` }, { method: 'POST', headers, body }])
      expect((await call(gateway.port, sent)).status).toBe(401)
  })

  it('a refused request is not forwarded, and gets no rate-limit headers', async () => {
    const before = data.seen.length
    const got = await call(gateway.port)
    expect(Object.keys(got.headers).filter((name) => name.includes('ratelimit'))).toEqual([])
    expect(data.seen.length).toBe(before)
  })
})

describe('the limits of a request', () => {
  it('every admitted call gets limit, remaining and reset, instead of the upstream’s fields', async () => {
    const mine = await token(newClient())
    const first = await call(gateway.port, { token: mine })
    expect(first.status).toBe(200)
    expect(first.headers).toMatchObject({ 'x-ratelimit-limit': '1000', 'x-ratelimit-remaining': '999' })
    expect(first.headers['x-ratelimit-reset']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const second = await call(gateway.port, { token: mine })
    expect(second.headers['x-ratelimit-remaining']).toBe('998')
    // The oldest call has not left the window, so Reset does not change.
    expect(second.headers['x-ratelimit-reset']).toBe(first.headers['x-ratelimit-reset'])
  })

  it('a second sync of a connection gets a 429, byte for byte, and is not charged to the client', async () => {
    const mine = await token(newClient())
    const sync = { method: 'POST', path: '/sync/a:b', token: mine, body: '{}' }
    expect((await call(gateway.port, sync)).headers).toMatchObject({
      'x-ratelimit-limit': '1000',
      'x-ratelimit-remaining': '999',
    })
    const asked = Date.now()
    const got = await call(gateway.port, { ...sync, headers: { 'X-Request-Id': 'abc-1' } })
    expect(got.status).toBe(429)
    expect(got.headers).toMatchObject({
      'x-ratelimit-limit': '1',
      'x-ratelimit-remaining': '0',
      'retry-after': '5',
      'cache-control': 'no-store',
      'content-type': 'application/problem+json',
    })
    const reset = Date.parse(got.headers['x-ratelimit-reset'] as string)
    expect(reset).toBeGreaterThan(asked)
    expect(reset).toBeLessThanOrEqual(Date.now() + 5000)
    expect(got.body).toBe(
      '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,' +
        '"detail":"The limit \\"sync\\" allows 1 call in 5 seconds. Retry in 5 seconds.","violated-policies":["sync"],' +
        '"code":"TooManyRequests","message":"Too Many Requests","retryAfterSecs":5,"correlationId":"abc-1"}',
    )
    expect((await call(gateway.port, { token: mine })).headers['x-ratelimit-remaining']).toBe('998')
  })

  it("an upstream's own 429 keeps its rate-limit fields, and gets the gateway's only if it has none", async () => {
    const got = await call(gateway.port, { path: '/v3/limited', token: await token(newClient()) })
    expect(got).toMatchObject({ status: 429, headers: { 'retry-after': '17', 'x-ratelimit-limit': '3' } })
    expect(got.headers).not.toHaveProperty('x-ratelimit-remaining')
    expect(got.json).toHaveProperty('digest')
    const silent = await call(gateway.port, { path: '/v3/limited-silently', token: await token(newClient()) })
    expect(silent).toMatchObject({
      status: 429,
      headers: { 'retry-after': '17', 'x-ratelimit-limit': '1000' },
    })
  })
})

describe('forwarding', () => {
  it('identity responses are returned unchanged: status, Location, each Set-Cookie, and rate-limit headers', async () => {
    const got = await call(gateway.port, {
      path: '/oidc/auth?client_id=a&redirect_uri=https%3A%2F%2Fx%2F%2Fy',
    })
    expect(got).toMatchObject({
      status: 303,
      body: '/oidc/auth?client_id=a&redirect_uri=https%3A%2F%2Fx%2F%2Fy',
    })
    expect(got.headers['set-cookie']).toEqual([
      'a=1; Path=/interaction/1; Expires=Wed, 01 Jan 2031 00:00:00 GMT',
      'b=2; Path=/oidc/auth',
    ])
    expect(got.headers.location).toBe('http://elsewhere.example/interaction/1?a=%2F')
    expect(got.headers['x-ratelimit-limit']).toBe('77')
  })

  it('the upstream gets the caller’s address and host, regardless of what the caller claims', async () => {
    await call(gateway.port, {
      path: '/oidc/x',
      headers: {
        ...{ Host: 'Identity.example.com:8443', 'X-Forwarded-For': '6.6.6.6', 'X-Forwarded-Host': 'evil' },
        ...{ Connection: 'keep-alive, X-Hop, Host, Content-Length', 'X-Hop': '1', TE: 'trailers' },
        ...{ Upgrade: 'h2c', Expect: '100-continue', Cookie: 'a=1; b=2' },
      },
    })
    const { connection: _, ...headers } = identity.seen.at(-1)!.headers
    expect(headers).toEqual({
      host: 'Identity.example.com:8443',
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-host': 'Identity.example.com:8443',
      'x-forwarded-proto': 'http',
      'x-forwarded-port': '8443',
      'x-real-ip': '127.0.0.1',
      'x-request-id': expect.stringMatching(/^[0-9a-f-]{36}$/),
      cookie: 'a=1; b=2',
    })
  })

  it('bodies with a length and in chunks are streamed byte for byte', async () => {
    const body = Buffer.alloc(3_000_000, 'äöü€')
    const digest = createHash('sha256').update(body).digest('hex')
    const mine = await token(newClient())
    const sized = await call(gateway.port, {
      method: 'POST',
      path: '/v3/x',
      token: mine,
      headers: { 'Content-Length': String(body.length) },
      body,
    })
    expect(sized.json).toEqual({ digest })
    const chunked = await call(gateway.port, {
      method: 'POST',
      path: '/v3/x',
      token: mine,
      headers: { 'Transfer-Encoding': 'chunked' },
      body,
    })
    expect(chunked.json).toEqual({ digest })
  })

  it('a request to an unreachable upstream gets a 502 with the rate-limit headers of the decision', async () => {
    const other = await startGateway({ data: await deadUrl() })
    const got = await call(other.port, { token: await token('x') })
    expect(got).toMatchObject({
      status: 502,
      headers: { 'x-ratelimit-limit': '1000', 'x-ratelimit-remaining': '999' },
    })
    expect(got.json).toMatchObject({ code: 'BadGateway', detail: 'The upstream cannot be reached.' })
    const oidc = await call(other.port, { path: '/oidc/x' })
    expect(oidc).toMatchObject({ status: 502, json: { error: 'server_error' } })
    await other.close()
  })
})

it.each(['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'])(
  'a blank %s asks for no other method, and is dropped',
  async (name) => {
    for (const value of ['', '  ', '\t', ['', ''], 'post', ['POST', '']]) {
      const got = await call(gateway.port, { method: 'POST', path: '/oidc/x', headers: { [name]: value } })
      expect([value, got.status]).toEqual([value, 303])
      expect(identity.seen.at(-1)!.headers).not.toHaveProperty(name.toLowerCase())
    }
    for (const value of ['put', ['', 'DELETE']]) {
      const got = await call(gateway.port, { method: 'POST', path: '/oidc/x', headers: { [name]: value } })
      expect([value, got.status]).toEqual([value, 400])
    }
  },
)
