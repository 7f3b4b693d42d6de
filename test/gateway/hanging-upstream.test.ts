import { once } from 'node:events'
import { Agent, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import {
  AUDIENCE,
  call as callWith,
  ISSUER,
  type LoggingGateway,
  type Settings,
  startLogging,
  TOKENS,
} from '../helpers/gateway.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

async function start(settings: Partial<Settings> = {}): Promise<LoggingGateway> {
  const routes = [
    { match: 'POST /pushed', upstream: 'identity', authenticate: 'par' },
    { match: '/*', upstream: 'data', authenticate: 'none' },
  ]
  const more = { par: { issuer: 'https://identity.example.com/oidc' }, drainTimeout: '100ms' }
  return await startLogging({ data: hanging.url, timeout: '60s', limits: {}, routes, more, ...settings })
}

const hanging = await startUpstream((request, response) => {
  if (request.url === '/now') response.end('ok')
  if (request.url === '/half') response.writeHead(200).write('half')
})
/** Accepts connections, and never sends a byte: a TLS handshake with it hangs. */
const silent = await startRawUpstream(() => {})
const gateway = await start()

/** Sends a request on a connection that does not stay open. */
const call = (port: number, path: string) => callWith(port, { path, agent: new Agent() })

/** Sends the bytes of a request on a connection of its own. */
function send(port: number, head: string, rest = ''): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  socket.write(`${head} HTTP/1.1\r\nHost: a\r\n${rest}\r\n`)
  closeLater(() => socket.destroy())
  return socket
}

async function shown(series: string, { adminPort } = gateway): Promise<number | undefined> {
  const { body } = await call(adminPort, '/metrics')
  const line = body.split('\n').find((line) => line.startsWith(`${series} `))
  return line === undefined ? undefined : Number(line.slice(series.length))
}
const shows = (series: string, value: number, at = gateway) =>
  until(`${series} is ${value}`, async () => (await shown(series, at)) === value)

const lines = (path: string, at = gateway) =>
  at.lines().filter((line) => line['msg'] === 'request' && line['path'] === path)

const WAITING = 'sluice_upstream_waiting{upstream="data"}'
const OLDEST = 'sluice_upstream_oldest_wait_seconds{upstream="data"}'
const COUNT = 'sluice_upstream_duration_seconds_count{upstream="data"}'

it('an upstream that hangs shows while its callers wait, and in the histogram after they left', async () => {
  expect((await call(gateway.port, '/now')).status).toBe(200)
  await shows(COUNT, 1)
  expect(await shown(WAITING)).toBe(0)
  expect(await shown(OLDEST)).toBe(0)

  const callers = [send(gateway.port, 'GET /half')]
  await once(callers[0]!, 'data')
  callers.push(send(gateway.port, 'GET /hang'))
  await until('a request has waited', async () => (await shown(OLDEST))! > 0.3)
  const before = (await shown(OLDEST))!
  for (let i = 0; i < 3; i++) callers.push(send(gateway.port, 'GET /hang'))
  await shows(WAITING, 4)
  expect(await shown(OLDEST)).toBeGreaterThan(before)
  const { status } = (await call(gateway.adminPort, '/overview')).json
  const of = (name: string) =>
    status.upstreams.find(({ upstream }: { upstream: string }) => upstream === name)
  expect(of('data')).toMatchObject({ up: true, waiting: 4 })
  expect(of('data').oldestWaitSeconds).toBeGreaterThan(before)
  expect(of('identity')).toMatchObject({ waiting: 0, oldestWaitSeconds: 0 })

  for (const socket of callers) socket.destroy()
  await shows(WAITING, 0)
  expect(await shown(OLDEST)).toBe(0)
  await shows(COUNT, 6)
  expect(await shown(COUNT.replace('count', 'sum'))).toBeGreaterThan(before)
  await until('the lines', () => lines('/hang').length === 4)
  for (const line of lines('/hang')) {
    const cause = 'the caller left while waiting for data'
    expect(line).toMatchObject({ level: 'info', status: 499, incomplete: 'left', cause })
    expect(line['waitedMs']).toBeGreaterThan(0)
    expect(line['waitedMs']).toBeLessThanOrEqual(line['durationMs'] as number)
  }
  // The response to this one had begun.
  await until('the line', () => lines('/half').length === 1)
  expect(lines('/half')[0]).toMatchObject({ status: 200, incomplete: 'left' })
  for (const path of ['/now', '/half']) {
    for (const field of ['waitedMs', 'cause']) expect(lines(path)[0]).not.toHaveProperty(field)
  }
  // Callers could cause more than the three failures in a row that take an address out of use.
  expect(await shown(`sluice_upstream_up{upstream="data",address="${hanging.url}"}`)).toBe(1)
  expect((await call(gateway.port, '/now')).status).toBe(200)
})

it('a caller that waits for a free connection does not count as one that waits for a head', async () => {
  const narrow = await start({ upstream: { maxConnections: 1 } })
  send(narrow.port, 'GET /first')
  await shows(WAITING, 1, narrow)
  const second = send(narrow.port, 'GET /second')
  await shows('sluice_upstream_queue{upstream="data"}', 1, narrow)
  expect(await shown(WAITING, narrow)).toBe(1)
  second.destroy()
  await until('the line', () => lines('/second', narrow).length === 1)
  const cause = 'the caller left while waiting for a free connection to data'
  expect(lines('/second', narrow)[0]).toMatchObject({ status: 499, cause, waitedMs: expect.any(Number) })
  expect(await shown(COUNT, narrow)).toBe(0)
})

it('a caller that leaves during a handshake with the upstream waited for a new connection', async () => {
  const secure = await start({
    data: silent.url.replace('http:', 'https:'),
    upstream: { connectTimeout: '60s' },
  })
  const caller = send(secure.port, 'GET /handshake')
  await until('the upstream has the connection', () => silent.sockets() === 1)
  caller.destroy()
  await until('the line', () => lines('/handshake', secure).length === 1)
  const cause = 'the caller left while waiting for a new connection to data'
  expect(lines('/handshake', secure)[0]).toMatchObject({ status: 499, cause })
  expect(await shown(COUNT, secure)).toBe(0)
})

/** The end of a connection within a body is malformed, and gets a 400; its reset is not. */
it('a caller that resets its connection within its own body did not wait for the upstream', async () => {
  const before = await shown(COUNT)
  const rest = 'Content-Length: 200000\r\n'
  // The second body fills the first buffer, so that its beginning is sent to the upstream.
  for (const [path, begun] of [
    ['/short', 'begun'],
    ['/long', 'x'.repeat(100_000)],
  ] as const) {
    const asked = once(hanging.server, 'request')
    const caller = send(gateway.port, `POST ${path}`, rest)
    caller.write(begun)
    if (path === '/long') await asked
    await shows('sluice_downstream_sockets', 1)
    expect(await shown(WAITING)).toBe(0)
    caller.resetAndDestroy()
    await until('the line', () => lines(path).length === 1)
    const cause = 'the caller left while sending its body'
    expect(lines(path)[0]).toMatchObject({ status: 499, cause, waitedMs: expect.any(Number) })
  }
  expect(await shown(COUNT)).toBe(before)
})

it('a request whose body the upstream stops reading waits for a head', async () => {
  const deaf = await startRawUpstream((socket) => void socket.pause())
  const routes = [{ match: '/*', upstream: 'data', authenticate: 'none', maxBody: '100MB' }]
  const large = await start({ data: deaf.url, routes, more: { drainTimeout: '100ms' } })
  const caller = send(large.port, 'POST /upload', 'Content-Length: 50000000\r\n')
  // More than the systems hold on the way.
  caller.write(Buffer.alloc(30_000_000))
  await shows(WAITING, 1, large)
  await until('it has waited', async () => (await shown(OLDEST, large))! > 0.3)
  expect(await shown(WAITING, large)).toBe(1)
})

it('a caller that resets its connection within its form sent its body', async () => {
  const caller = send(gateway.port, 'POST /pushed', 'Content-Length: 10\r\n')
  await shows('sluice_downstream_sockets', 1)
  caller.resetAndDestroy()
  await until('the line', () => lines('/pushed').length === 1)
  const [line] = lines('/pushed')
  const cause = 'the caller left while sending its body'
  expect(line).toMatchObject({ status: 499, cause, waitedMs: line!['durationMs'] })
})

it('a caller that leaves during the introspection of its token did not wait for the upstream', async () => {
  const introspection = await startIntrospection()
  const asked: ServerResponse[] = []
  introspection.answer = (response) => void asked.push(response)
  const guarded = await start({
    tokens: {
      ...TOKENS,
      introspection: { url: introspection.url, clientId: 'sluice', clientSecret: 'secret' },
    },
    routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer' }],
    more: { drainTimeout: '100ms' },
  })
  const caller = send(guarded.port, 'GET /opaque', 'Authorization: Bearer opaque\r\n')
  await until('the issuer is asked', () => asked.length === 1)
  caller.destroy()
  await shows('sluice_downstream_sockets', 0, guarded)
  const answer = { active: true, client_id: 'acme', iss: ISSUER, aud: AUDIENCE }
  asked[0]!.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer))
  await until('the line', () => lines('/opaque', guarded).length === 1)
  const [line] = lines('/opaque', guarded)
  const cause = 'the caller left before its request was forwarded'
  expect(line).toMatchObject({ status: 499, client: 'acme', cause, waitedMs: line!['durationMs'] })
  expect(await shown(COUNT, guarded)).toBe(0)
})
