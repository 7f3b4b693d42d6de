import { EventEmitter } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { boundSockets } from '../../../src/downstream/listener/sockets.ts'
import { closeLater } from '../../helpers/closing.ts'
import { call, startGateway, type TestGateway } from '../../helpers/gateway.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

async function gateway(listen: object, trustedProxies: readonly string[] = []): Promise<TestGateway> {
  const data = await startUpstream()
  return await startGateway({ data: data.url, listen, trustedProxies })
}
function open({ port }: TestGateway, localAddress = '127.0.0.1'): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  socket.on('error', () => {}).on('end', () => socket.destroy())
  closeLater(() => socket.destroy())
  return socket
}
/** Waits until `count` of the sockets are open, and expects responses on them. */
async function expectOpen(sockets: readonly Socket[], count: number): Promise<Socket[]> {
  const alive = () => sockets.filter((socket) => !socket.destroyed)
  await until(`${count} are open`, () => alive().length === count)
  const answers = alive().map(
    (socket) =>
      new Promise<string>((resolve) => {
        socket.once('data', (chunk: Buffer) => resolve(chunk.toString()))
        socket.write('GET /oidc/x HTTP/1.1\r\nHost: a\r\n\r\n')
      }),
  )
  for (const answer of await Promise.all(answers)) expect(answer).toMatch(/^HTTP\/1\.1 200 /)
  return alive()
}
const dropped = async ({ adminPort }: TestGateway, bound: string): Promise<string | undefined> =>
  new RegExp(`^sluice_dropped_sockets_total\\{bound="${bound}"\\} (\\d+)$`, 'm').exec(
    (await call(adminPort, { path: '/metrics' })).body,
  )?.[1]

describe('sockets beyond a maximum', () => {
  it('sockets beyond maxConnections are closed at once and counted, until one is free', async () => {
    const one = await gateway({ maxConnections: 3 })
    const sockets = Array.from({ length: 5 }, (_, i) => open(one, `127.0.0.${i + 1}`))
    const [first] = await expectOpen(sockets, 3)
    expect(await dropped(one, 'maxConnections')).toBe('2')
    first!.destroy()
    await until('a socket is free', async () => {
      const next = open(one)
      await new Promise((resolve) => next.once('close', resolve).once('data', resolve).write('x\r\n\r\n'))
      return next.bytesRead > 0
    })
  })

  it('sockets beyond maxConnectionsPerAddress are closed at once and counted, and other addresses are served', async () => {
    const one = await gateway({ maxConnectionsPerAddress: 2 })
    const greedy = Array.from({ length: 5 }, () => open(one))
    await expectOpen(greedy, 2)
    await expectOpen([open(one, '127.0.0.2'), open(one, '127.0.0.2')], 2)
    expect(await dropped(one, 'maxConnectionsPerAddress')).toBe('3')
    expect(await dropped(one, 'maxConnections')).toBe('0')
    for (const socket of greedy) socket.destroy()
    await until('the sockets are free', async () => {
      const next = open(one)
      await new Promise((resolve) => next.once('close', resolve).once('data', resolve).write('x\r\n\r\n'))
      return next.bytesRead > 0
    })
  })

  it('sockets beyond maxConnectionsPerAddress are served for a trusted proxy', async () => {
    const one = await gateway({ maxConnectionsPerAddress: 1 }, ['127.0.0.0/31'])
    await expectOpen([open(one), open(one), open(one)], 3)
    await expectOpen([open(one, '127.0.0.2'), open(one, '127.0.0.2')], 1)
  })
})

describe('an address', () => {
  it.each([
    ['of IPv6 is its /64', ['2001:db8::1', '2001:db8::ffff:1', '2001:db8:0:0:7::1'], 1],
    ['of IPv6 is none of another /64', ['2001:db8::1', '2001:db8:0:1::1', '2001:db8:1::1'], 3],
    ['of IPv4 is the same when mapped into IPv6', ['192.0.2.1', '::ffff:192.0.2.1', '::ffff:c000:201'], 1],
    ['of IPv4 is itself', ['192.0.2.1', '192.0.2.2', '::ffff:192.0.2.3'], 3],
  ])('%s', (_, addresses, places) => {
    const server = createServer(() => {})
    const sockets = addresses.map((remoteAddress) =>
      Object.assign(new EventEmitter(), { remoteAddress, destroy() {} }),
    )
    const open = boundSockets(
      server,
      { maxConnections: 10, maxConnectionsPerAddress: 1, headersTimeoutMs: 1000 },
      { trusts: () => false, dropped() {}, unproxied() {} },
    )
    for (const socket of sockets) server.emit('connection', socket as unknown as Socket)
    expect(open.size).toBe(places)
    for (const socket of sockets) socket.emit('close')
    expect(open.size).toBe(0)
    server.emit('connection', sockets[0] as unknown as Socket)
    expect(open.size).toBe(1)
  })
})
