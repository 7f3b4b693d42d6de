import { connect, createServer, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { call, startGateway, startLogging, token } from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { accepting, handshake } from '../helpers/websocket.ts'
import { until } from '../helpers/wait.ts'

/** Bytes before and behind a handshake and its 101: none may be read as a request or a response of somebody else. */

const HIDDEN = 'GET /ordinary/hidden HTTP/1.1\r\nHost: a\r\n\r\n'
const FORGED = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged'

/** An upstream that records the bytes of each connection; a test answers. */
interface Connection {
  readonly socket: Socket
  got: string
}
const connections: Connection[] = []
/** Answers a request; the connection may carry another one. */
function respond(connection: Connection, body: string): void {
  connection.got = ''
  connection.socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
}
const server = createServer((socket) => {
  const connection = { socket, got: '' }
  connections.push(connection)
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => {
    connection.got += chunk.toString('latin1')
    if (!connection.got.startsWith('GET /ordinary') || !connection.got.endsWith('\r\n\r\n')) return
    respond(connection, 'ordinary')
  })
})
const back = await listenLocally(server)
const settings = {
  data: back.url,
  timeout: '20s',
  limits: { one: { per: ['client'], limit: 1, window: '1h' } },
  routes: [
    { match: '/limited', upstream: 'data', authenticate: 'bearer', limits: ['one'], upgrade: 'websocket' },
    { match: 'POST,GET /open/*', upstream: 'data', authenticate: 'none', upgrade: 'websocket' },
    { match: '/ordinary/*', upstream: 'data', authenticate: 'none' },
  ],
}
const { port } = await startGateway(settings)

/** Waits for a connection of the upstream whose bytes begin so. */
async function arrived(start: string): Promise<Connection> {
  const find = () => connections.find(({ got }) => got.startsWith(start) && got.includes('\r\n\r\n'))
  await until(`the upstream has ${start}`, () => find() !== undefined)
  return find()!
}
const bodyOf = ({ got }: Connection): string => got.slice(got.indexOf('\r\n\r\n') + 4)

/** Opens a caller that has sent bytes. */
function caller(bytes: string | Buffer) {
  const socket = connect(port, '127.0.0.1')
  closeLater(() => socket.destroy())
  const state = { socket, got: '' }
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (state.got += chunk.toString('latin1')))
  socket.write(bytes)
  return state
}

it.each([
  ['by the gateway, without a route', '/none', undefined, 404],
  ['by the gateway, without a token', '/limited', undefined, 401],
  ['by the gateway, on another route', '/ordinary/x', undefined, 501],
  ['by a limit', '/limited', 'over', 429],
])('bytes behind a handshake that is refused %s are dropped', async (_, path, client, status) => {
  const bearer = client && `Bearer ${await token(client)}`
  const head = handshake(path, { Authorization: bearer })
  if (client !== undefined) {
    const first = caller(head)
    const { socket } = await arrived('GET /limited')
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    await until('the first has its answer', () => first.got.endsWith('ok'))
  }
  const before = connections.length
  const { text, closed } = await raw(port, head + HIDDEN + HIDDEN)
  expect(statuses(text)).toEqual([status])
  expect(closed).toBe(true)
  expect(connections).toHaveLength(before)
})

it('bytes behind a handshake that the upstream refuses are dropped, and its connection is not used again', async () => {
  const first = caller(handshake('/open/refused') + HIDDEN)
  const upstream = await arrived('GET /open/refused')
  upstream.socket.write('HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno')
  await until('the response has come', () => first.got.endsWith('no'))
  const before = connections.length
  expect((await call(port, { path: '/ordinary/next' })).body).toBe('ordinary')
  expect(connections.length).toBe(before + 1)
  first.socket.write(HIDDEN)
  await until('the caller is closed', () => first.socket.closed)
  await until('the upstream is closed', () => upstream.socket.closed)
  expect(statuses(first.got)).toEqual([200])
  expect(bodyOf(upstream)).toBe('')
})

it('a handshake has a connection to the upstream that carried nothing else', async () => {
  await call(port, { path: '/ordinary/first' })
  const before = connections.length
  await call(port, { path: '/ordinary/second' })
  expect(connections).toHaveLength(before)
  caller(handshake('/open/fresh'))
  await arrived('GET /open/fresh')
  expect(connections).toHaveLength(before + 1)
})

it('bytes behind a handshake reach the upstream only after its 101, byte for byte', async () => {
  const early = `\u0000\u00ff${HIDDEN}`
  const first = caller(Buffer.from(handshake('/open/early') + early, 'latin1'))
  const upstream = await arrived('GET /open/early')
  const later = 'later'.repeat(40_000)
  first.socket.write(later)
  // The gateway has read the rest when another connection of the same process is served.
  for (let i = 0; i < 3; i++) await call(port, { path: '/ordinary/between' })
  expect(bodyOf(upstream)).toBe('')
  upstream.socket.write(`${accepting(upstream.got)}${FORGED}`)
  await until('all has arrived', () => bodyOf(upstream).length === early.length + later.length)
  expect(bodyOf(upstream)).toBe(early + later)
  await until('the bytes behind the 101 have come', () => first.got.endsWith(FORGED))
  expect(statuses(first.got)).toEqual([101, 200])
})

it('bytes behind the 101 are not the response to a later request', async () => {
  const first = caller(handshake('/open/behind'))
  const upstream = await arrived('GET /open/behind')
  upstream.socket.write(accepting(upstream.got))
  await until('it is open', () => first.got.includes('101'))
  first.socket.destroy()
  await until('the upstream is closed', () => upstream.socket.closed)
  upstream.socket.write(FORGED)
  expect((await call(port, { path: '/ordinary/after' })).body).toBe('ordinary')
})

it('the caller sees nothing of an upstream that switches to something else', async () => {
  const first = caller(handshake('/open/else'))
  const upstream = await arrived('GET /open/else')
  upstream.socket.write(
    `HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n${FORGED}`,
  )
  await until('the caller is closed', () => first.socket.closed)
  expect(statuses(first.got)).toEqual([502])
  expect(first.got).not.toContain('forged')
})

it('an upgrade that was not asked for is a 502, also of a request that asked for another protocol', async () => {
  const switching = await startRawUpstream((socket, head) => {
    socket.write(`${accepting(head.toString('latin1'))}${FORGED}`)
  })
  const other = await startGateway({ ...settings, data: switching.url })
  const fields = { Upgrade: 'h2c', Connection: 'Upgrade, HTTP2-Settings' }
  for (const path of ['/ordinary/x', '/open/x']) {
    expect((await call(other.port, { path })).status).toBe(502)
    const { text } = await raw(other.port, handshake(path, fields))
    expect(statuses(text)).toEqual([502])
  }
})

const KEY = 'dGhlIHNhbXBsZSBub25jZQ=='
const MALFORMED: readonly (readonly [string, string, string?])[] = [
  ['is a POST', handshake('/open/m', {}, 'POST /open/m HTTP/1.1')],
  ['is in HTTP/1.0', handshake('/open/m', {}, 'GET /open/m HTTP/1.0')],
  ['has a body', handshake('/open/m', { 'Content-Length': String(HIDDEN.length) })],
  ['has chunks', handshake('/open/m', { 'Transfer-Encoding': 'chunked' }), '0\r\n\r\n'],
  ['has two protocols', handshake('/open/m', { Upgrade: 'websocket, h2c' })],
  ['has two Upgrade fields', handshake('/open/m', { Upgrade: 'websocket\r\nUpgrade: websocket' })],
  ['has another Upgrade field', handshake('/open/m', { Upgrade: 'h2c\r\nUpgrade: websocket' })],
  ['has no Connection', handshake('/open/m', { Connection: undefined })],
  ['has another Connection', handshake('/open/m', { Connection: 'keep-alive' })],
  ['has no key', handshake('/open/m', { 'Sec-WebSocket-Key': undefined })],
  ['has two keys', handshake('/open/m', { 'Sec-WebSocket-Key': `${KEY}\r\nSec-WebSocket-Key: ${KEY}` })],
  ['has a key of another length', handshake('/open/m', { 'Sec-WebSocket-Key': 'AAAA' })],
  ['has no version', handshake('/open/m', { 'Sec-WebSocket-Version': undefined })],
  ['has two versions', handshake('/open/m', { 'Sec-WebSocket-Version': '13\r\nSec-WebSocket-Version: 8' })],
]
it.each(MALFORMED)('a handshake that %s is refused, with what follows', async (_, head, body = '') => {
  const before = connections.length
  const { text, closed } = await raw(port, head + body + HIDDEN + HIDDEN)
  expect(statuses(text)).toEqual([400])
  expect(closed).toBe(true)
  expect(connections).toHaveLength(before)
})

it.each(['Upgrade', 'upgrade', 'keep-alive, Upgrade', 'UPGRADE , x'])(
  'a handshake may have Connection: %s',
  async (Connection) => {
    const path = `/open/connection-${encodeURIComponent(Connection).replaceAll('%', '-')}`
    const first = caller(handshake(path, { Connection, Upgrade: 'WebSocket' }))
    const upstream = await arrived(`GET ${path}`)
    expect(upstream.got).toMatch(/\r\nconnection: Upgrade\r\nupgrade: websocket\r\n/)
    upstream.socket.write(accepting(upstream.got))
    await until('it is open', () => first.got.includes('101'))
  },
)

it('a handshake behind other requests waits for their responses', async () => {
  const first = caller(`GET /open/held HTTP/1.1\r\nHost: a\r\n\r\n${HIDDEN}${handshake('/open/waits')}early`)
  const held = await arrived('GET /open/held')
  for (let i = 0; i < 3; i++) await call(port, { path: '/ordinary/between' })
  expect(connections.some(({ got }) => got.startsWith('GET /open/waits'))).toBe(false)
  respond(held, 'held')
  const upstream = await arrived('GET /open/waits')
  expect(statuses(first.got)).toEqual([200, 200])
  upstream.socket.write(`${accepting(upstream.got)}hello`)
  await until('it is open', () => first.got.endsWith('hello'))
  expect(statuses(first.got)).toEqual([200, 200, 101])
  first.socket.write('later')
  await until('all has arrived', () => bodyOf(upstream) === 'earlylater')
})

it('bytes behind a handshake that waits for many responses wait, too', async () => {
  const one = 'GET /open/one-of-many HTTP/1.1\r\nHost: a\r\n\r\n'
  const first = caller(one.repeat(30) + handshake('/open/last'))
  await arrived('GET /open/one-of-many')
  first.socket.write('early'.repeat(1000))
  for (let i = 0; i < 30; i++) respond(await arrived('GET /open/one-of-many'), 'x')
  const upstream = await arrived('GET /open/last')
  upstream.socket.write(accepting(upstream.got))
  first.socket.write('later')
  await until('all has arrived', () => bodyOf(upstream).endsWith('later'))
  expect(bodyOf(upstream)).toBe(`${'early'.repeat(1000)}later`)
})

it('a handshake behind a long response to a slow reader opens when that is read', async () => {
  const first = connect(port, '127.0.0.1')
  closeLater(() => first.destroy())
  first.pause()
  first.write(`GET /open/long HTTP/1.1\r\nHost: a\r\n\r\n`)
  const long = await arrived('GET /open/long')
  const body = 'x'.repeat(20_000_000)
  respond(long, body)
  await until(
    'the gateway waits for the caller',
    () => long.socket.writableLength > 0 && long.socket.bytesWritten > 0,
  )
  first.write(`${HIDDEN}${handshake('/open/slow')}early`)
  for (let i = 0; i < 3; i++) await call(port, { path: '/ordinary/between' })
  let got = 0
  let tail = ''
  first.on('data', (chunk: Buffer) => {
    got += chunk.length
    tail = (tail + chunk.toString('latin1')).slice(-1000)
  })
  first.resume()
  const upstream = await arrived('GET /open/slow')
  expect(got).toBeGreaterThan(body.length)
  upstream.socket.write(accepting(upstream.got))
  await until('it is open', () => tail.includes(' 101 '))
  first.write('later'.repeat(100_000))
  await until('all has arrived', () => bodyOf(upstream) === `early${'later'.repeat(100_000)}`)
})

it('a handshake behind a request that closes the connection is not served', async () => {
  const { text } = await raw(
    port,
    HIDDEN.replace('Host: a', 'Host: a\r\nConnection: close') + handshake('/open/closed'),
  )
  expect(statuses(text)).toEqual([200])
  expect(connections.some(({ got }) => got.startsWith('GET /open/closed'))).toBe(false)
})

it('a handshake behind too many requests is dropped with them', async () => {
  const one = 'GET /open/many HTTP/1.1\r\nHost: a\r\n\r\n'
  const first = caller(one.repeat(70) + handshake('/open/overflow'))
  await until('the caller is closed', () => first.socket.closed)
  expect(connections.some(({ got }) => got.startsWith('GET /open/overflow'))).toBe(false)
})

it('a handshake whose caller leaves before the 101 ends at the upstream, too', async () => {
  const logging = await startLogging(settings)
  for (const leave of ['end', 'resetAndDestroy'] as const) {
    const path = `/open/left-${leave}`
    const first = connect(logging.port, '127.0.0.1')
    first.on('error', () => {})
    first.write(handshake(path))
    const upstream = await arrived(`GET ${path}`)
    first[leave]()
    await until('the upstream is closed', () => upstream.socket.closed)
    await until('it is logged', () => logging.lines().some((line) => line['path'] === path))
    expect(logging.lines().find((line) => line['path'] === path)).toMatchObject({ status: 499 })
  }
})

it('more than 200 fields are refused', async () => {
  const many = Object.fromEntries(Array.from({ length: 201 }, (_, i) => [`X-${i}`, 'x']))
  const { text } = await raw(port, handshake('/open/fields', many) + HIDDEN)
  expect(statuses(text)).toEqual([431])
})
