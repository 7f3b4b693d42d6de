import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { drain } from '../../../src/downstream/listener/drain.ts'
import { createListener, listen } from '../../../src/downstream/listener/server.ts'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { call, startGateway, startLogging } from '../../helpers/gateway.ts'
import { SILENT } from '../../helpers/listener.ts'
import { withTests } from '../../helpers/process.ts'
import { answered, raw, statuses } from '../../helpers/raw.ts'
import { freePort } from '../../helpers/ports.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const ROUTES = [{ match: '/*', upstream: 'data', authenticate: 'none' }]
const folder = createFolder()
const { cert, key } = makeCertificate()
writeFileSync(join(folder, 'cert.pem'), cert)
writeFileSync(join(folder, 'key.pem'), key)

const BOUNDS = {
  maxHeaderSize: 4096,
  headersTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  keepAliveTimeoutMs: 60_000,
  maxConnections: 10,
  maxConnectionsPerAddress: 10,
}
const GET = 'GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'
const V1 = 'PROXY TCP4 192.0.2.7 10.0.0.1 56789 443\r\n'
const START_V2 = '\r\n\r\n\0\r\nQUIT\n'
const V2 = `${START_V2}\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\0\x01\0\x02`
const LOCAL = `${START_V2}\x20\0\0\0`
const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')

/** Starts a gateway that expects headers from 127.0.0.1 (not 127.0.0.2), and from 192.0.2.200 behind that. */
async function start(listen: object = {}, trustedProxies = ['127.0.0.1/32', '192.0.2.200/32']) {
  const back = await startUpstream()
  const gateway = await startLogging({
    data: back.url,
    routes: ROUTES,
    trustedProxies,
    listen: { proxyProtocol: true, ...listen },
  })
  const warnings = () =>
    gateway.lines().filter(({ msg }) => msg === 'connection without a valid PROXY header closed')
  return { ...gateway, back, warnings }
}

function open(port: number, localAddress = '127.0.0.1'): { readonly socket: Socket; said(): string } {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  closeLater(() => socket.destroy())
  let said = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
  return { socket, said: () => said }
}
const closed = (socket: Socket): Promise<void> =>
  until('the socket is closed', () => socket.destroyed || socket.readableEnded)

describe.concurrent('a connection with a PROXY header', () => {
  it.each([
    ['version 1', V1],
    ['version 2', V2],
  ])('of %s is from the address that its header has', async (_, header) => {
    const { port, back, lines } = await start()
    const spoofed = GET.replace('Host', 'X-Forwarded-For: 203.0.113.9\r\nHost')
    expect(statuses((await raw(port, bytes(header + spoofed))).text)).toEqual([200])
    expect(back.seen[0]!.headers).toMatchObject({
      'x-forwarded-for': '192.0.2.7',
      'x-real-ip': '192.0.2.7',
    })
    await until('its line', () => lines().some(({ msg, ip }) => msg === 'request' && ip === '192.0.2.7'))
  })

  it('gets its responses if each byte comes by itself, also the second on the connection', async () => {
    const { port, back } = await start()
    const { socket, said } = open(port)
    socket.setNoDelay(true)
    const first = 'GET /1 HTTP/1.1\r\nHost: a\r\n\r\n'
    for (const byte of bytes(V2 + first)) {
      await new Promise((resolve) => socket.write(Buffer.from([byte]), resolve))
      await new Promise(setImmediate)
    }
    await until('the first response', () => statuses(said()).length === 1)
    socket.write(`POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(100_000)}${GET}`)
    await closed(socket)
    expect(statuses(said())).toEqual([200, 200, 200])
    expect(back.seen.map(({ body }) => body.length)).toEqual([0, 100_000, 0])
    expect(new Set(back.seen.map(({ headers }) => headers['x-real-ip']))).toEqual(new Set(['192.0.2.7']))
  })

  it('and a body in the same bytes is served', async () => {
    const { port, back } = await start()
    const post = `POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n${'x'.repeat(300_000)}`
    expect(statuses((await raw(port, bytes(V1 + post), answered)).text)).toEqual([200])
    expect(back.seen[0]!.body).toHaveLength(300_000)
  })

  it('is from its own address if its header has none, but is not a trusted proxy', async () => {
    const { port, back } = await start()
    const spoofed = GET.replace('Host', 'X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nHost')
    for (const header of ['PROXY UNKNOWN\r\n', LOCAL])
      expect(statuses((await raw(port, bytes(header + spoofed))).text)).toEqual([200])
    for (const { headers } of back.seen)
      expect(headers).toMatchObject({ 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'http' })
  })

  it('from a trusted proxy behind the one that sends it, is from the address of the latter', async () => {
    const { port, back } = await start()
    const forwarded = GET.replace('Host', 'X-Forwarded-For: 203.0.113.9\r\nHost')
    await raw(port, bytes(V1.replace('192.0.2.7', '192.0.2.200') + forwarded))
    expect(back.seen[0]!.headers['x-real-ip']).toBe('203.0.113.9')
  })

  it('has its malformed request logged with the address', async () => {
    const { port, lines } = await start()
    expect(statuses((await raw(port, bytes(`${V1}garbage\r\n\r\n`))).text)).toEqual([400])
    await until('its line', () =>
      lines().some(({ msg, ip }) => msg === 'malformed request' && ip === '192.0.2.7'),
    )
  })

  it('is closed beyond the maximum of the address that its header has', async () => {
    const { port, adminPort } = await start({ maxConnectionsPerAddress: 2 })
    const held = [open(port), open(port), open(port)]
    for (const { socket } of held) socket.write(bytes(V1))
    await until('one of them is closed', () => held.filter(({ socket }) => socket.destroyed).length === 1)
    const other = V1.replace('192.0.2.7', '192.0.2.8')
    expect(statuses((await raw(port, bytes(other + GET))).text)).toEqual([200])
    const { body } = await call(adminPort, { path: '/metrics' })
    expect(body).toMatch(/^sluice_dropped_sockets_total\{bound="maxConnectionsPerAddress"\} 1$/m)
    held.find(({ socket }) => !socket.destroyed)!.socket.destroy()
    await until('there is room again', async () =>
      statuses((await raw(port, bytes(V1 + GET))).text).includes(200),
    )
  })

  it('that has no request yet does not delay a drain', async () => {
    const bounds = { ...BOUNDS, proxyProtocol: true }
    const server = createListener(() => {}, bounds, { ...SILENT, trusts: () => true })
    const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
    const { socket } = open(port)
    socket.write(bytes(V1))
    const [accepted] = (await once(server, 'connection')) as [Socket]
    await until('the header is read', () => accepted.remoteAddress === '192.0.2.7')
    expect(await drain(server, 60_000)).toBe(0)
  })

  it('before TLS is from the address that its header has', async () => {
    const { port, back, lines } = await start({
      tls: { cert: `${folder}/cert.pem`, key: `${folder}/key.pem` },
    })
    const { socket } = open(port)
    await new Promise((resolve) => socket.write(bytes(V2), resolve))
    const secure = connectTls({ socket, rejectUnauthorized: false })
    let said = ''
    secure.on('error', () => {}).on('data', (chunk: Buffer) => (said += chunk.toString()))
    secure.write(GET)
    await until('the response', () => answered(said))
    expect(statuses(said)).toEqual([200])
    expect(back.seen[0]!.headers).toMatchObject({ 'x-real-ip': '192.0.2.7', 'x-forwarded-proto': 'https' })
    await raw(port, bytes(`${V1}no TLS at all\r\n\r\n`))
    await until('the failed handshake is logged', () =>
      lines().some(({ msg, ip }) => msg === 'TLS handshake failed' && ip === '192.0.2.7'),
    )
  })
})

describe.concurrent('a connection is closed, and logged once,', () => {
  it.each([
    ['from a peer that is not a trusted proxy', '127.0.0.2', V1 + GET, 'not in listen.trustedProxies'],
    ['without a header', '127.0.0.1', GET, 'no PROXY header'],
    ['with a malformed header', '127.0.0.1', 'PROXY TCP4 a b c d\r\n', 'a malformed PROXY line'],
  ])('%s', async (_, peer, sent, error) => {
    const { port, back, warnings } = await start()
    for (let i = 0; i < 2; i++) {
      const { socket, said } = open(port, peer)
      socket.write(bytes(sent))
      await closed(socket)
      expect(said()).toBe('')
    }
    await until('it is logged', () => warnings().length > 0)
    expect(warnings()).toEqual([expect.objectContaining({ level: 'warn', ip: peer, error })])
    expect(back.seen).toEqual([])
  })

  it('if the header is late or ends', async () => {
    const late = await start({ headersTimeout: '1s' })
    const one = open(late.port)
    one.socket.write('PROXY ')
    await closed(one.socket)
    await until('it is logged', () => late.warnings().length === 1)
    const ending = await start()
    const probe = open(ending.port)
    probe.socket.end()
    await closed(probe.socket)
    const two = open(ending.port)
    two.socket.end('PROXY ')
    await closed(two.socket)
    await until('it is logged', () => ending.warnings().length === 1)
    expect(ending.warnings()[0]).toMatchObject({ error: 'an incomplete PROXY header' })
  })
})

it.concurrent('a header that is not expected is a malformed request', async () => {
  const back = await startUpstream()
  const { port } = await startGateway({ data: back.url, routes: ROUTES, trustedProxies: ['127.0.0.1/32'] })
  expect(statuses((await raw(port, bytes(V1 + GET))).text)).toEqual([400])
  expect(back.seen).toEqual([])
})

it.concurrent.each(['send-proxy', 'send-proxy-v2', 'send-proxy-v2 proxy-v2-options unique-id,crc32c'])(
  'HAProxy with %s sends its callers’ addresses',
  async (option) => {
    const { port, back } = await start()
    const own = await freePort()
    const file = join(createFolder(), 'haproxy.cfg')
    writeFileSync(
      file,
      `defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend callers
  bind 127.0.0.1:${own}
  unique-id-format %[uuid()]
  default_backend sluice
backend sluice
  server one 127.0.0.1:${port} ${option}
`,
    )
    const child = withTests(spawn('haproxy', ['-f', file], { stdio: 'ignore' }))
    closeLater(() => child.kill('SIGKILL'))
    await until('HAProxy serves', async () => (await raw(own, GET)).text !== '')
    const { socket, said } = open(own, '127.0.0.5')
    socket.write(GET)
    await closed(socket)
    expect(statuses(said())).toEqual([200])
    expect(back.seen.at(-1)!.headers).toMatchObject({
      'x-forwarded-for': '127.0.0.5',
      'x-real-ip': '127.0.0.5',
    })
  },
)
