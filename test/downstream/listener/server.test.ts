import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { call, startGateway, token } from '../../helpers/gateway.ts'
import { raw, statuses } from '../../helpers/raw.ts'
import { startRawUpstream, startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

/** Opens a caller that sends some bytes, and then neither more nor an end. */
function stubborn(port: number, bytes: string): Socket & { said: string } {
  const socket = Object.assign(connect({ port, host: '127.0.0.1', allowHalfOpen: true }), { said: '' })
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (socket.said += chunk.toString()))
  socket.write(bytes)
  closeLater(() => socket.destroy())
  return socket
}

describe.concurrent('a caller that never ends its side', () => {
  it.each([
    ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n', 405],
    ['garbage', 'garbage\r\n\r\n', 400],
  ])('still has its socket closed after %s', async (_, bytes, status) => {
    const data = await startUpstream()
    const { port } = await startGateway({
      data: data.url,
      listen: { requestTimeout: '4s', headersTimeout: '4s' },
    })
    const socket = stubborn(port, bytes)
    await until('the answer', () => statuses(socket.said)[0] === status)
    await until('the end', () => socket.readableEnded || socket.destroyed)
    // The kernel resets a write to a closed socket.
    await until('the socket is closed', () => {
      if (!socket.destroyed) socket.write('x')
      return socket.destroyed
    })
    expect(statuses(socket.said)).toEqual([status])
  })

  it('a caller that never ends its side does not hold an upstream beyond requestTimeout', async () => {
    const back = await startRawUpstream(() => {})
    const { port } = await startGateway({
      data: back.url,
      listen: { requestTimeout: '1s', headersTimeout: '1s' },
    })
    const head = 'POST /oidc/x HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n'
    const socket = stubborn(port, head + 'x'.repeat(100_000))
    await until('the upstream is asked', () => back.sockets() === 1)
    await until('the caller gets a 408', () => statuses(socket.said)[0] === 408)
    await until('the upstream is free', () => back.sockets() === 0)
    expect(statuses(socket.said)).toEqual([408])
  })

  it('a caller that never ends its side does not delay the end of the gateway', async () => {
    const data = await startUpstream()
    const { port, running } = await startGateway({ data: data.url })
    stubborn(port, 'GET /half')
    const refused = stubborn(port, 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n')
    await until('the refusal', () => statuses(refused.said)[0] === 405)
    const ended = await Promise.race([
      running.close().then(() => true),
      new Promise((resolve) => setTimeout(resolve, 5000)),
    ])
    expect(ended).toBe(true)
  })
})

it.concurrent('a caller that ends its side of the socket before the response has disconnected', async () => {
  const back = await startRawUpstream(() => {})
  const routes = [{ match: '/*', upstream: 'data', authenticate: 'none', timeout: '5m' }]
  const { port } = await startGateway({ data: back.url, routes })
  const socket = stubborn(port, 'GET /x HTTP/1.1\r\nHost: a\r\n\r\n')
  await until('the upstream is asked', () => back.sockets() === 1)
  socket.end()
  await until('the upstream is free', () => back.sockets() === 0)
  expect(socket.said).toBe('')
})

it.concurrent('callers that disconnect leave the queue for an upstream', async () => {
  const back = await startRawUpstream((socket, first) => {
    if (first.includes('/v3/now')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  })
  const { port } = await startGateway({ data: back.url, upstream: { maxConnections: 1 } })
  const mine = await token('acme')
  const ask = `GET /v3/never HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${mine}\r\n\r\n`
  const holding = stubborn(port, ask)
  await until('the one socket is taken', () => back.sockets() === 1)
  const impatient = stubborn(port, ask)
  await new Promise((resolve) => setTimeout(resolve, 100))
  impatient.destroy()
  await new Promise((resolve) => setTimeout(resolve, 100))
  const next = call(port, { path: '/v3/now', token: mine })
  await new Promise((resolve) => setTimeout(resolve, 100))
  holding.destroy()
  expect((await next).status).toBe(200)
})

it.concurrent('a caller gets the response to a refused upload', async () => {
  const back = await startRawUpstream((socket, first) => {
    if (first.includes('POST')) socket.write('HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\n\r\nno')
  })
  const { port } = await startGateway({ data: back.url })
  const head = 'POST /oidc/x HTTP/1.1\r\nHost: a\r\nContent-Length: 6000000\r\n\r\n'
  const { text } = await raw(port, Buffer.concat([Buffer.from(head), Buffer.alloc(3_000_000, 'x')]))
  expect(statuses(text)).toEqual([413])
})

it.concurrent.each([
  ['an upstream answers', '/oidc/x', 413],
  ['the gateway refuses', '/v3/x', 401],
])('a caller still sending a body that %s early gets the response, not a reset', async (_, path, status) => {
  const back = await startRawUpstream((socket, first) => {
    if (first.includes('POST')) socket.write('HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\n\r\nno')
  })
  const { port } = await startGateway({
    data: back.url,
    listen: { requestTimeout: '4s', headersTimeout: '4s' },
  })
  const more = 'x'.repeat(100_000)
  const socket = stubborn(port, `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 6000000\r\n\r\n${more}`)
  const errors: unknown[] = []
  socket.on('error', (error) => errors.push(error))
  await until('the answer and its end', () => statuses(socket.said)[0] === status && socket.readableEnded)
  for (let i = 0; i < 5; i++) await new Promise((resolve) => socket.write(more, resolve))
  expect(errors).toEqual([])
  // The gateway drops the rest, but not for ever.
  await until('the socket is closed', () => {
    if (!socket.destroyed) socket.write('x')
    return socket.destroyed
  })
})

describe.concurrent('a caller that sends the whole of a slow body before it reads', () => {
  const PIECES = 40
  it.each([
    ['a refusal', 5_000_000, 401],
    ['too large a body', 20_000_000, 413],
  ])('gets the response of %s', async (_, length, status) => {
    const { port } = await startGateway({ data: (await startUpstream()).url })
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    closeLater(() => socket.destroy())
    const errors: unknown[] = []
    socket.on('error', (error) => errors.push(error))
    socket.write(`POST /v3/x HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`)
    for (let i = 0; i < PIECES; i++) {
      socket.write('x'.repeat(16_000))
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    expect(errors).toEqual([])
    let text = ''
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
    await until('the response', () => socket.readableEnded)
    expect(statuses(text)).toEqual([status])
  })

  it('has its socket closed if it then sends nothing', async () => {
    const { port, adminPort } = await startGateway({ data: (await startUpstream()).url })
    const socket = stubborn(port, 'POST /v3/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx')
    await until('the response', () => socket.readableEnded)
    expect(statuses(socket.said)).toEqual([401])
    await until('the socket is closed', async () =>
      /^sluice_downstream_sockets 0$/m.test((await call(adminPort, { path: '/metrics' })).body),
    )
  })
})
