import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { call, type Call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { makeKey, signJws, startIssuer } from '../helpers/issuer.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const ISSUER = 'https://identity.example.com/oidc'
const key = makeKey('ES256', 'signing')
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }
/** A form that would be serialised differently after parsing. */
const BODY =
  'client_id=plain&scope=openid+id%3Ab74f&redirect_uri=https%3a%2F%2fclient.example.com%2Fcb&response_type=code&claims=%7B%22id_token%22%3A%7B%22sub%22%3A%22true%22%7D%7D&state=%c3%a4'

let answer: 'created' | 'break' = 'created'

const identity = await startUpstream((request, response) => {
  if (answer === 'break') request.socket.destroy()
  else {
    response.writeHead(201, { 'Content-Type': 'application/json', 'X-RateLimit-Limit': 'mine' })
    response.end('{"request_uri":"urn:ietf:params:oauth:request_uri:1","expires_in":60}')
  }
})
const remote = await startIssuer({ algorithms: ['ES256'] })
const gateway = await startGateway({
  data: identity.url,
  // A push needs no counters, so it succeeds without a reachable store.
  store: { redis: { url: 'redis://127.0.0.1:1' }, onOutage: 'deny' },
  routes: [
    { match: 'GET,PUT /oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  ],
  more: {
    par: { issuer: ISSUER, maxBody: '4kB' },
    clients: [
      { id: 'signer', requestObjectSigningAlg: 'ES256', jwks: { keys: [key.jwk] } },
      { id: 'remote', requestObjectSigningAlg: 'ES256', jwksUri: remote.jwksUri },
      { id: 'secretive', authentication: 'client_secret_basic' },
    ],
  },
})
beforeEach(() => {
  answer = 'created'
  identity.seen.length = 0
})

const push = (body: string | Buffer, more: Call = {}) =>
  call(gateway.port, {
    method: 'POST',
    path: '/oidc/request',
    ...more,
    headers: { ...FORM, 'Content-Length': String(Buffer.byteLength(body)), ...more.headers },
    body,
  })

/** Sends a POST in chunks, with the head first. */
function pour(chunks: readonly string[], headers: Record<string, string> = {}) {
  const request = httpRequest({
    host: '127.0.0.1',
    port: gateway.port,
    method: 'POST',
    path: '/oidc/request',
    agent: false,
    headers: { ...FORM, ...headers },
  })
  const answered = once(request, 'response').then(
    ([response]) => (response as { statusCode: number }).statusCode,
  )
  const write = () => {
    for (const chunk of chunks) request.write(chunk)
    request.end()
  }
  return { request, answered, write }
}

function object(client: string, by = key): string {
  const nowSec = Math.floor(Date.now() / 1000)
  return signJws(
    { alg: 'ES256', kid: by.kid },
    {
      iss: client,
      aud: ISSUER,
      client_id: client,
      scope: 'openid',
      response_type: 'code',
      redirect_uri: 'https://client.example.com/cb',
      exp: nowSec + 60,
      nbf: nowSec,
    },
    by,
  )
}

describe('a pushed request', () => {
  it('reaches the identity backend once, byte for byte, and its response is returned unchanged', async () => {
    const pushed = await push(BODY, { headers: { 'Content-Type': `${FORM['Content-Type']};charset=UTF-8` } })
    expect(pushed.status).toBe(201)
    expect(pushed.json).toEqual({ request_uri: 'urn:ietf:params:oauth:request_uri:1', expires_in: 60 })
    expect(pushed.headers['x-ratelimit-limit']).toBe('mine')
    expect(identity.seen).toHaveLength(1)
    const [seen] = identity.seen
    expect(seen).toMatchObject({ method: 'POST', url: '/oidc/request' })
    expect(seen!.body.toString()).toBe(BODY)
    expect(seen!.headers).toMatchObject({
      'content-type': `${FORM['Content-Type']};charset=UTF-8`,
      'content-length': String(BODY.length),
    })
  })

  it('a pushed request may be sent in chunks, and after 100 Continue', async () => {
    const chunked = pour([BODY.slice(0, 7), BODY.slice(7)])
    chunked.write()
    expect(await chunked.answered).toBe(201)
    const asking = pour([BODY], { Expect: '100-continue' })
    asking.request.flushHeaders()
    await once(asking.request, 'continue')
    asking.write()
    expect(await asking.answered).toBe(201)
    expect(identity.seen.map(({ body }) => body.toString())).toEqual([BODY, BODY])
    expect(identity.seen[0]!.headers['content-length']).toBe(String(BODY.length))
    expect(identity.seen[0]!.headers['transfer-encoding']).toBeUndefined()
  })

  it('a pushed request is at most as large as par.maxBody, with a length or in chunks', async () => {
    const most = `${BODY}&x=`.padEnd(4096, 'x')
    expect((await push(most)).status).toBe(201)
    const refused = await push(`${most}x`)
    expect(refused.status).toBe(413)
    expect(refused.json).toMatchObject({ error: 'invalid_request' })
    expect(refused.headers['cache-control']).toBe('no-store')
    const chunked = pour([most, 'x'])
    chunked.write()
    expect(await chunked.answered).toBe(413)
    expect(identity.seen).toHaveLength(1)
  })

  it('a pushed request is not retried after a failure', async () => {
    await push(BODY)
    answer = 'break'
    const broken = await push(BODY)
    expect(broken.status).toBe(502)
    expect(broken.json).toMatchObject({ error: 'server_error' })
    expect(identity.seen).toHaveLength(2)
  })

  it('a pushed request that breaks off is not forwarded', async () => {
    const socket = connect(gateway.port, '127.0.0.1')
    socket.write(
      `POST /oidc/request HTTP/1.1\r\nHost: a\r\nContent-Type: ${FORM['Content-Type']}\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY.slice(1)}`,
    )
    await once(socket, 'connect')
    socket.destroy()
    await push(BODY)
    expect(identity.seen).toHaveLength(1)
  })

  it('a pushed request that is not a form, or has no client, is refused like by the provider', async () => {
    for (const refused of [
      await push('{}', { headers: { 'Content-Type': 'application/json' } }),
      await push(''),
      await push(BODY.replace('client_id=plain&', '')),
      await push(`${BODY}&state=again`),
      await push(BODY, { headers: { 'Content-Encoding': 'gzip' } }),
      await push(BODY.replace('=plain', '=secretive')),
    ]) {
      expect(refused.status).toBe(400)
      expect(refused.json).toMatchObject({ error: 'invalid_request' })
      expect(refused.headers['content-type']).toBe('application/json')
      expect(refused.headers['cache-control']).toBe('no-store')
    }
    expect(identity.seen).toEqual([])
  })

  it('a pushed request of a client that signs must be signed by it, with keys in the file or at a URL', async () => {
    expect((await push(BODY.replace('=plain', '=signer'))).json).toMatchObject({ error: 'invalid_request' })
    expect((await push(`client_id=signer&request=${object('signer')}`)).status).toBe(201)
    const forged = await push(`client_id=signer&request=${object('signer', makeKey('ES256', 'signing'))}`)
    expect([forged.status, forged.json.error]).toEqual([400, 'invalid_request_object'])
    await until('the keys of the client', async () => {
      const pushed = await push(`client_id=remote&request=${object('remote', remote.key('ES256'))}`)
      return pushed.status === 201
    })
  })
})

describe('the path of the PAR endpoint', () => {
  it.each(['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE'])(
    'the path of the PAR endpoint does not accept %s, also if other routes do',
    async (method) => {
      for (const path of ['/oidc/request', '/OIDC/Request/?a=b']) {
        const refused = await call(gateway.port, { method, path })
        expect(refused.status).toBe(405)
        expect(refused.headers['allow']).toBe('POST')
        if (method !== 'HEAD') expect(refused.json).toMatchObject({ error: 'invalid_request' })
      }
      expect(identity.seen).toEqual([])
    },
  )

  it.each(['?', '?client_id=signer', '?request_uri=urn:x'])(
    'the path of the PAR endpoint does not accept a query: %s',
    async (query) => {
      const refused = await push(BODY, { path: `/oidc/request${query}` })
      expect(refused.status).toBe(400)
      expect(refused.json).toMatchObject({ error: 'invalid_request' })
      expect(identity.seen).toEqual([])
    },
  )

  it.each(['.', ',', '+', '.json', '.json/x', '+/x', '%2e', '%2C', '%20', '%E2%80%8B'])(
    'the path of the PAR endpoint is not bypassed by the suffix %s',
    async (end) => {
      expect((await push(BODY, { path: `/oidc/request${end}` })).status).toBe(404)
      expect(identity.seen).toEqual([])
    },
  )

  it.each(['/oidc/request%3Fx', '/oidc/request%23x', '/oidc/request%3Bx', '///x/oidc/request'])(
    'the path of the PAR endpoint is not bypassed by another reading: %s',
    async (path) => {
      expect((await push(BODY, { path })).status).toBe(400)
      expect(identity.seen).toEqual([])
    },
  )

  it('the path of the PAR endpoint does not affect similar paths', async () => {
    expect((await call(gateway.port, { path: '/oidc/auth?request_uri=urn:x' })).status).toBe(201)
    expect((await call(gateway.port, { method: 'POST', path: '/oidc/token', body: 'a=b' })).status).toBe(201)
    expect(identity.seen.map(({ url }) => url)).toEqual(['/oidc/auth?request_uri=urn:x', '/oidc/token'])
  })
})

describe('incomplete bodies', () => {
  const PART = Buffer.alloc(9 * 1024 ** 2, 'x')
  let many: TestGateway
  beforeAll(async () => {
    many = await startGateway({
      data: identity.url,
      trustedProxies: ['127.0.0.1/32'],
      routes: [{ match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' }],
      more: { par: { issuer: ISSUER, maxBody: '10MB' } },
    })
  })
  const opened: Socket[] = []
  afterEach(() => {
    for (const socket of opened.splice(0)) socket.destroy()
  })

  /** Sends a body without its last byte. */
  async function begin(ip: string) {
    const socket = connect(many.port, '127.0.0.1')
    opened.push(socket)
    const state = { text: '', closed: false }
    socket.on('data', (chunk: Buffer) => (state.text += chunk.toString()))
    socket.on('error', () => {})
    socket.on('close', () => (state.closed = true))
    await once(socket, 'connect')
    socket.write(
      `POST /oidc/request HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: ${ip}\r\nContent-Type: ${FORM['Content-Type']}\r\nContent-Length: ${PART.length + 1}\r\n\r\n`,
    )
    socket.write(PART)
    await until('it is read', () => socket.bytesWritten > PART.length && socket.writableLength === 0)
    return state
  }
  const push = async (ip: string) =>
    (
      await call(many.port, {
        method: 'POST',
        path: '/oidc/request',
        headers: { ...FORM, 'X-Forwarded-For': ip },
        body: BODY,
      })
    ).status
  const assertBusy = ({ text }: { readonly text: string }) => {
    expect(text).toMatch(/^HTTP\/1\.1 503 /)
    expect(text).toMatch(/\r\nRetry-After: 1\r\n/)
    expect(text).toContain('"temporarily_unavailable"')
  }

  it('incomplete bodies of one address may buffer 16 MB: the first body is aborted if another needs room', async () => {
    const open: Awaited<ReturnType<typeof begin>>[] = []
    for (let i = 0; i < 3; i++) open.push(await begin('192.0.2.1'))
    await until('the first two are ended', () => open.filter(({ closed }) => closed).length === 2)
    for (const one of open.slice(0, 2)) assertBusy(one)
    expect(await push('192.0.2.1')).toBe(201)
    expect(await push('192.0.2.2')).toBe(201)
    expect(open[2]!.text).toBe('')
  })

  it('incomplete bodies of all addresses may buffer 64 MB: the first body is aborted if another needs room, and every complete push succeeds', async () => {
    const open: Awaited<ReturnType<typeof begin>>[] = []
    for (let i = 0; i < 9; i++) {
      open.push(await begin(`192.0.2.${i}`))
      expect(await push('198.51.100.1')).toBe(201)
    }
    await until('three are ended', () => open.filter(({ closed }) => closed).length === 3)
    for (const one of open.slice(0, 3)) assertBusy(one)
    expect(open.slice(3).map(({ text }) => text)).toEqual(Array(6).fill(''))
  })
})
