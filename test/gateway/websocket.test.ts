import { connect, type Socket } from 'node:net'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, type LoggingGateway, startGateway, startLogging, token, yaml } from '../helpers/gateway.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { startRedis } from '../helpers/redis.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { accepting, type Client, handshake, openSocket, startSocketBackend } from '../helpers/websocket.ts'
import { until } from '../helpers/wait.ts'

const back = await startSocketBackend()
const LIMITS = {
  sockets: { per: ['client'], limit: 2, window: '1h' },
  once: { per: ['client'], limit: 1, window: { calendar: 'year' }, count: 'success' },
  exports: { per: ['client'], concurrent: 2 },
  requests: { per: ['client'], limit: 100, window: '1h' },
}
const ROUTES = [
  { match: '/ws/*', upstream: 'data', authenticate: 'bearer', limits: ['sockets'], upgrade: 'websocket' },
  {
    match: '/once/*',
    upstream: 'data',
    authenticate: 'bearer',
    limits: ['once'],
    upgrade: 'websocket',
    timeout: '1s',
  },
  { match: '/scoped/*', upstream: 'data', authenticate: 'bearer', scope: ['chat'], upgrade: 'websocket' },
  { match: '/at-once', upstream: 'data', authenticate: 'bearer', limits: ['exports'], upgrade: 'websocket' },
  { match: '/open/*', upstream: 'data', authenticate: 'none', upgrade: 'websocket' },
  { match: '/own-limits', respond: 'limits', authenticate: 'bearer' },
  { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
]
const settings = { data: back.url, limits: LIMITS, routes: ROUTES }
const gateway = await startLogging(settings)
const { port } = gateway

/** Returns the line of the access log for a path, when it is written. */
async function lineOf(path: string, of: LoggingGateway = gateway): Promise<Record<string, unknown>> {
  const find = () => of.lines().find((line) => line['path'] === path)
  await until(`${path} is logged`, () => find() !== undefined)
  return find()!
}
const closed = (client: Client) => until('the WebSocket is closed', () => client.closeCode !== undefined)
const KEY = { Upgrade: 'websocket', Connection: 'Upgrade' }

describe('a route with upgrade: websocket', () => {
  it('opens a WebSocket, which is one call, and logs it when it closes', async () => {
    const client = await openSocket(port, '/ws/a?b=c', await token('opens'), {
      headers: { 'X-Request-Id': 'my-id' },
    })
    expect(client.refused).toBeUndefined()
    for (const text of ['one', 'two', 'x'.repeat(300_000)]) await client.echo(text)
    const seen = back.handshakes.at(-1)!
    expect(seen.url).toBe('/ws/a?b=c')
    expect(seen.headers).toMatchObject({
      connection: 'Upgrade',
      upgrade: 'websocket',
      'x-request-id': 'my-id',
    })
    expect(gateway.lines().some(({ path }) => path === '/ws/a')).toBe(false)
    client.socket.close(4000, 'done')
    await closed(client)
    expect(client.closeCode).toBe(4000)
    const line = await lineOf('/ws/a')
    expect(line).toMatchObject({
      status: 101,
      source: 'upstream',
      client: 'opens',
      limit: 'sockets',
      remaining: 1,
    })
    expect(line).not.toHaveProperty('incomplete')
    // The echo has two messages of the client, and frames of the same size or four bytes less.
    expect(line['received']).toBeGreaterThan(300_000)
    expect(line['bytes']).toBeGreaterThan(300_000)
    await until('the upstream has no socket', () => back.sockets() === 0)
  })

  it('shows the limit and the request id in the 101, and no other hop-by-hop field', async () => {
    const bearer = await token('fields')
    const head = handshake('/ws/fields', { Authorization: `Bearer ${bearer}`, 'X-Request-Id': 'an-id' })
    const { text } = await raw(port, head, (got) => got.includes('\r\n\r\n'))
    expect(text).toMatch(
      /^HTTP\/1\.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/,
    )
    expect(text).toMatch(/^X-RateLimit-Remaining: 1\r$/m)
    expect(text).toMatch(/^X-Request-Id: an-id\r$/im)
    expect(text.match(/^(?:connection|upgrade):/gim)).toHaveLength(2)
    expect(text).not.toMatch(/content-length|transfer-encoding|keep-alive/i)
  })

  it.each([
    ['a 401 without a token', '/ws/refused', undefined, 401],
    ['a 403 without a scope', '/scoped/refused', 'a', 403],
    ['a 400 for a path with dot segments', '/../x', 'a', 400],
    ['a 501 where responses are the gateway’s own', '/own-limits', 'a', 501],
    ['a 501 on a route without it', '/other/refused', 'charged', 501],
  ])('refuses a handshake with %s, and closes its connection', async (_, path, client, status) => {
    const bearer = client && `Bearer ${await token(client)}`
    const before = back.handshakes.length
    const { text, closed: isClosed } = await raw(port, handshake(path, { Authorization: bearer }))
    expect(statuses(text)).toEqual([status])
    expect(text).toMatch(/^Connection: close\r$/m)
    expect(JSON.parse(text.slice(text.indexOf('{')))).toMatchObject({ status })
    expect(isClosed).toBe(true)
    expect(back.handshakes).toHaveLength(before)
  })

  it('answers 429 beyond the limit, which the client of the package sees as an ordinary response', async () => {
    const bearer = await token('limited')
    const open = [await openSocket(port, '/ws/1', bearer), await openSocket(port, '/ws/2', bearer)]
    const third = await openSocket(port, '/ws/3', bearer)
    expect(third.refused).toMatchObject({ status: 429, headers: { 'x-ratelimit-remaining': '0' } })
    await open[0]!.echo('still open')
    expect(await lineOf('/ws/3')).toMatchObject({ status: 429, decision: 'refused', source: 'gateway' })
  })

  it('serves ordinary requests, and keeps their connection', async () => {
    const got = await call(port, { path: '/open/polling?x=1' })
    expect(got).toMatchObject({ status: 200, body: '/open/polling?x=1' })
    expect(got.headers.connection).toBe('keep-alive')
  })

  it('passes on a response that is not 101, and closes the connection', async () => {
    const { text, closed: isClosed } = await raw(
      port,
      handshake('/open/old', { 'Sec-WebSocket-Version': '7' }),
    )
    expect(statuses(text)).toEqual([400])
    expect(text).toContain('Sec-WebSocket-Version')
    expect(isClosed).toBe(true)
    expect(await lineOf('/open/old')).toMatchObject({ status: 400, source: 'upstream' })
  })
})

describe('another route', () => {
  it('charges nothing for a WebSocket that it refuses', async () => {
    const bearer = await token('uncharged')
    const refused = await openSocket(port, '/other/ws', bearer)
    expect(refused.refused?.status).toBe(501)
    expect((await call(port, { path: '/other', token: bearer })).headers['x-ratelimit-remaining']).toBe('99')
    expect(await lineOf('/other/ws')).toMatchObject({ level: 'info', error: 'No WebSocket is opened here.' })
  })

  it.each(['GET', 'POST'])(
    'serves a %s that asks for another protocol as an ordinary request',
    async (method) => {
      const headers = {
        Connection: 'Upgrade, HTTP2-Settings',
        Upgrade: 'h2c',
        'HTTP2-Settings': 'AAMAAABkAAQAAP__',
      }
      const bearer = await token('h2c')
      for (const path of ['/other/h2c', '/ws/h2c']) {
        const sent = {
          method,
          path,
          token: bearer,
          headers,
          ...(method === 'POST' && { body: 'x'.repeat(100_000) }),
        }
        expect(await call(port, sent)).toMatchObject({ status: 200, body: path })
      }
    },
  )

  it('answers a proxy that asks about a handshake as about any request', async () => {
    const asked = await startGateway({ ...settings, more: { forwardAuth: { port: 0, from: 'traefik' } } })
    const headers = {
      ...{ 'X-Forwarded-Method': 'GET', 'X-Forwarded-Host': 'a', 'X-Forwarded-Uri': '/other/ws' },
      ...{ 'X-Forwarded-For': '192.0.2.1', ...KEY },
    }
    const bearer = await token('asked')
    const { status } = await call(asked.askPort, { path: '/', token: bearer, headers })
    expect(status).toBe(200)
    const whole = { ...headers, Authorization: `Bearer ${bearer}` }
    const { text } = await raw(asked.askPort, handshake('/', whole), answered)
    expect(statuses(text)).toEqual([200])
  })
})

describe('a limit with concurrent', () => {
  it('counts a WebSocket until it closes, at all gateways', async () => {
    const store = { redis: { url: (await sharedRedis()).url }, prefix: 'websocket', timeout: '10s' }
    const [a, b] = await Promise.all([
      startGateway({ ...settings, store }),
      startGateway({ ...settings, store }),
    ])
    const bearer = await token('at-once')
    const first = await openSocket(a.port, '/at-once', bearer)
    const second = await openSocket(b.port, '/at-once', bearer)
    for (const one of [a, b])
      expect((await openSocket(one.port, '/at-once', bearer)).refused?.status).toBe(429)
    await first.echo('open')
    await second.echo('open')
    first.socket.terminate()
    let third: Client | undefined
    await until(
      'another may be opened',
      async () => {
        third = await openSocket(b.port, '/at-once', bearer)
        return third.refused === undefined
        // A call whose caller left keeps its slot for ten seconds.
      },
      9000,
    )
    await third!.echo('open')
    expect((await openSocket(a.port, '/at-once', bearer)).refused?.status).toBe(429)
  })

  it('counts it longer than its lease, which is renewed', async () => {
    const { url, command } = await sharedRedis()
    const store = { redis: { url }, prefix: 'renewed', timeout: '500ms' }
    const one = await startGateway({ ...settings, store, timeout: '1h' })
    const client = await openSocket(one.port, '/at-once', await token('renewed'))
    const key = 'renewed:{renewed}:~leases:exports'
    const expiry = async () => Number(((await command('ZRANGE', key, 0, -1, 'WITHSCORES')) as string[])[1])
    await until('Redis has it', async () => (await expiry()) > 0)
    const first = await expiry()
    await until('it is renewed', async () => (await expiry()) > first)
    expect(client.closeCode).toBeUndefined()
    client.socket.close()
    await until('it has ended', async () => Number.isNaN(await expiry()))
  })

  it('counts it without Redis, too, and the WebSocket stays open', async () => {
    const redis = await startRedis()
    const store = { redis: { url: redis.url }, prefix: 'outage', timeout: '200ms' }
    const one = await startGateway({ ...settings, store })
    const bearer = await token('outage')
    const [first, second] = [
      await openSocket(one.port, '/at-once', bearer),
      await openSocket(one.port, '/at-once', bearer),
    ]
    await redis.kill()
    await first.echo('during the outage')
    expect((await openSocket(one.port, '/at-once', bearer)).refused?.status).toBe(429)
    await redis.start()
    await second.echo('after the outage')
    first.socket.close()
    await until(
      'another may be opened',
      async () => (await openSocket(one.port, '/at-once', bearer)).refused === undefined,
    )
  })

  it('limits with count: success keep the call of a WebSocket that was opened, however it ends', async () => {
    const bearer = await token('success')
    const client = await openSocket(port, '/once/a', bearer)
    await closed(client)
    expect(client.closeCode).toBe(1006)
    expect(await lineOf('/once/a')).toMatchObject({
      ...{ status: 101, incomplete: 'cut', level: 'info' },
      error: 'The WebSocket was silent for too long.',
    })
    expect((await openSocket(port, '/once/b', bearer)).refused?.status).toBe(429)
  })
})

/** Starts a gateway before an upstream that `talk` makes, with keys of the upstream. */
async function before(talk: (socket: Socket, head: Buffer) => void, upstream?: object, timeout = '20s') {
  const raws = await startRawUpstream(talk)
  return {
    raws,
    ...(await startLogging({ ...settings, data: raws.url, timeout, ...(upstream && { upstream }) })),
  }
}

describe('a WebSocket ends', () => {
  it('with a 504 if its 101 does not come', async () => {
    const silent = await before(() => {}, undefined, '200ms')
    expect((await openSocket(silent.port, '/open/a')).refused?.status).toBe(504)
    await until('the upstream has no socket', () => silent.raws.sockets() === 0)
  })

  it.each([
    [
      'for another protocol',
      'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nHTTP/1.1 200 OK\r\n\r\n',
    ],
    ['without the accepted key', accepting('Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n')],
    ['without Connection', 'HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n'],
    ['in HTTP/1.0', accepting(handshake('/')).replace('1.1', '1.0')],
  ])('with a 502 if its 101 is %s, and the address stays up', async (_, said) => {
    const other = await before((socket) => void socket.write(said))
    for (let i = 0; i < 4; i++) {
      const { text } = await raw(other.port, handshake('/open/a'))
      expect(statuses(text)).toEqual([502])
    }
    await until('the upstream has no socket', () => other.raws.sockets() === 0)
  })

  it('if the upstream breaks off, and logs that', async () => {
    const broken = await before((socket, head) => {
      const text = head.toString('latin1')
      if (text.startsWith('GET')) socket.write(accepting(text))
      else socket.resetAndDestroy()
    })
    const client = await openSocket(broken.port, '/open/a')
    client.socket.send('x')
    await closed(client)
    expect(await lineOf('/open/a', broken)).toMatchObject({
      status: 101,
      incomplete: 'cut',
      error: 'The upstream broke off.',
    })
  })

  it('after the last bytes of an upstream that ends it', async () => {
    const last = 'the last bytes'.repeat(200_000)
    const ending = await before(
      (socket, head) => void socket.end(`${accepting(head.toString('latin1'))}${last}`),
    )
    const { text, closed: isClosed } = await raw(ending.port, handshake('/open/a'))
    expect(text.slice(text.indexOf('\r\n\r\n') + 4) === last).toBe(true)
    expect(isClosed).toBe(true)
    const line = await lineOf('/open/a', ending)
    expect(line).toMatchObject({ status: 101, bytes: last.length, received: 0 })
    expect(line).not.toHaveProperty('incomplete')
  })

  it('when the caller leaves, and the upstream gets its last bytes', async () => {
    let got = ''
    const counting = await before((socket, head) => {
      const text = head.toString('latin1')
      if (text.startsWith('GET')) socket.write(accepting(text))
      else got += text
    })
    const caller = connect(counting.port, '127.0.0.1')
    closeLater(() => caller.destroy())
    caller.write(handshake('/open/leaves'))
    caller.once('data', () => caller.end('the last bytes'))
    await until('the upstream has them', () => got === 'the last bytes')
    await until('the upstream has no socket', () => counting.raws.sockets() === 0)
    expect(await lineOf('/open/leaves', counting)).toMatchObject({ status: 101, received: 14 })
    const other = await openSocket(counting.port, '/open/resets')
    ;(other.socket as unknown as { _socket: Socket })._socket.resetAndDestroy()
    expect(await lineOf('/open/resets', counting)).toMatchObject({ status: 101, incomplete: 'left' })
    await until('the upstream has no socket again', () => counting.raws.sockets() === 0)
  })

  it('after drainTimeout, while open requests end before', async () => {
    const draining = await startLogging(settings)
    const client = await openSocket(draining.port, '/open/drain')
    const closing = draining.close()
    await client.echo('still open')
    await closing
    await closed(client)
    expect(client.closeCode).toBe(1006)
    expect(await lineOf('/open/drain', draining)).toMatchObject({ status: 101, incomplete: 'cut' })
  })

  it('not on a reload, not even without its route', async () => {
    const file = join(createFolder(), 'sluice.yaml')
    const reloading = await startLogging(settings, file)
    const client = await openSocket(reloading.port, '/open/reload')
    const routes = [{ match: '/*', upstream: 'identity', authenticate: 'none' }]
    writeFileSync(file, yaml({ ...settings, data: 'http://127.0.0.1:1', identity: back.url, routes }))
    await reloading.running.reload('signal')
    expect((await openSocket(reloading.port, '/open/reload')).refused?.status).toBe(501)
    await client.echo('open')
  })
})

describe('bounds', () => {
  it('neither side is read faster than the other reads', async () => {
    const chunk = Buffer.alloc(100_000, 'x')
    let upstream: Socket | undefined
    const flood = await before((socket, head) => {
      if (upstream !== undefined) return
      upstream = socket
      socket.write(accepting(head.toString('latin1')))
    })
    const caller = connect(flood.port, '127.0.0.1')
    closeLater(() => caller.destroy())
    caller.write(handshake('/open/slow'))
    await new Promise((resolve) => caller.once('readable', resolve))
    caller.read()
    for (const [from, to] of [
      [upstream!, caller],
      [caller, upstream!],
    ] as const) {
      to.removeAllListeners('data')
      to.pause()
      let sent = 0
      // The buffers of the kernel, of two connections, hold at most some megabytes.
      const isFull = () => from.writableLength > 1e6
      for (let i = 0; i < 1000 && !isFull(); i++) {
        from.write(chunk)
        sent += chunk.length
        await new Promise((resolve) => setImmediate(resolve))
      }
      expect(isFull()).toBe(true)
      expect(sent).toBeLessThan(1e8)
      let got = 0
      to.on('data', ({ length }: Buffer) => (got += length))
      to.resume()
      await until('all is read', () => got === sent)
    }
  })

  it('one caller has at most a quarter of the sockets of an upstream, and its other calls pass', async () => {
    const few = await startGateway({ ...settings, upstream: { maxConnections: 8 }, timeout: '20s' })
    const bearer = await token('many')
    const open = [await openSocket(few.port, '/scoped/1', await token('many', { scope: 'chat' }))]
    open.push(await openSocket(few.port, '/scoped/2', await token('many', { scope: 'chat' })))
    expect(open.map(({ refused }) => refused)).toEqual([undefined, undefined])
    expect((await openSocket(few.port, '/once/3', bearer)).refused?.status).toBe(503)
    expect((await call(few.port, { path: '/other', token: bearer })).status).toBe(200)
    expect((await openSocket(few.port, '/ws/other', await token('another'))).refused).toBeUndefined()
  })

  it('metrics count a WebSocket when it ends, its duration as that of the handshake, and the open ones', async () => {
    const one = await startLogging({ ...settings, timeout: '700ms' })
    const metric = async (name: string) => {
      const { body } = await call(one.adminPort, { path: '/metrics' })
      return body
        .split('\n')
        .find((line) => line.startsWith(name))
        ?.split(' ')
        .at(-1)
    }
    const open = 'sluice_upstream_websockets{upstream="data"}'
    expect(await metric(open)).toBe('0')
    const client = await openSocket(one.port, '/open/metrics')
    expect(await metric(open)).toBe('1')
    await closed(client)
    const { durationMs } = await lineOf('/open/metrics', one)
    expect(await metric(open)).toBe('0')
    const labels = 'route="/open/*",method="GET",code="101",source="upstream",upstream="data"'
    expect(await metric(`sluice_http_requests_total{${labels}}`)).toBe('1')
    const handshakeMs =
      1000 * Number(await metric('sluice_http_request_duration_seconds_sum{route="/open/*",upstream="data"}'))
    expect(handshakeMs).toBeLessThan(Number(durationMs) - 600)
  })
})

it('a WebSocket passes over TLS', async () => {
  const folder = createFolder()
  const { cert, key } = makeCertificate()
  writeFileSync(join(folder, 'cert.pem'), cert)
  writeFileSync(join(folder, 'key.pem'), key)
  const secure = await startGateway({
    ...settings,
    listen: { tls: { cert: `${folder}/cert.pem`, key: `${folder}/key.pem` } },
  })
  const caller = connectTls({ port: secure.port, host: '127.0.0.1', rejectUnauthorized: false })
  closeLater(() => caller.destroy())
  let got = ''
  caller.on('data', (chunk: Buffer) => (got += chunk.toString('latin1')))
  // A text frame with `hi`, whose mask is zeros, behind the handshake.
  caller.write(`${handshake('/open/tls')}\u0081\u0082\0\0\0\0hi`, 'latin1')
  await until('it comes back', () => got.endsWith('hi'))
  expect(got.slice(got.indexOf('\r\n\r\n') + 4)).toBe('\u0081\u0002hi')
})
