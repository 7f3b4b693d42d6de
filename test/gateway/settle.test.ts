import { connect, type Socket } from 'node:net'
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const upstream = await startUpstream((request, response) => {
  const how = request.headers['x-answer']
  if (how === 'never') return
  if (how === 'cut')
    response.writeHead(200, { 'content-length': '9' }).write('half', () => response.destroy())
  else if (how === 'slow') response.writeHead(200).write('half')
  else if (how === 'reset') response.destroy()
  else response.writeHead(Number(how)).end()
})
const start = (upstreamMore: object, timeout = '1s') =>
  startGateway({
    data: upstream.url,
    timeout,
    upstream: upstreamMore,
    limits: {
      requests: { per: ['client'], limit: 1000, window: '1m' },
      none: { per: ['client'], limit: 0, window: '1m' },
      month: { per: ['client'], limit: 100, window: { calendar: 'month' }, count: 'success' },
      minute: { per: ['client'], limit: 100, window: '1m', count: 'success' },
    },
    routes: [
      { match: '/month', upstream: 'data', authenticate: 'bearer', limits: ['month', 'requests'] },
      { match: '/minute', upstream: 'data', authenticate: 'bearer', limits: ['minute', 'requests'] },
      { match: '/none', upstream: 'data', authenticate: 'bearer', limits: ['month', 'none'] },
      { match: '/all', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
    ],
  })
const gateway = await start({ maxConnections: 256 })
let client = ''
beforeEach(() => {
  client = randomUUID()
})

const ask = async (path: string, answer: string, { port } = gateway) =>
  call(port, { path, token: await token(client), headers: { 'X-Answer': answer } })

describe.each(['/month', '/minute'])('under %s with count: success,', (path) => {
  /** Waits until that many calls are counted, besides those that ask. */
  async function expectCounted(calls: number, at = gateway): Promise<void> {
    let asked = 0
    const remaining = async () => Number((await ask(path, '200', at)).headers['x-ratelimit-remaining'])
    await until('the calls are settled', async () => (await remaining()) === 100 - calls - ++asked)
    // A call that is settled twice would be missing now.
    expect(await remaining()).toBe(100 - calls - asked - 1)
  }

  it.each(['200', '204', '304'])('a call that is answered with %s counts', async (status) => {
    expect((await ask(path, status)).status).toBe(Number(status))
    expect((await ask(path, '500')).status).toBe(500)
    await expectCounted(1)
  })

  it.each([
    ['400', 400],
    ['404', 404],
    ['429', 429],
    ['500', 500],
    ['reset', 502],
    ['never', 504],
  ])('a call that ends by %s is settled once', async (answer, status) => {
    await ask(path, '200')
    expect((await ask(path, answer)).status).toBe(status)
    await expectCounted(1)
  })

  it('a call whose response the upstream cuts is settled once', async () => {
    await ask(path, '200')
    await expect(ask(path, 'cut')).rejects.toThrow('aborted')
    await expectCounted(1)
  })

  /** Sends a request on a socket that is then closed. */
  async function leaving(port: number, answer: string): Promise<Socket> {
    const socket = connect(port, '127.0.0.1')
    const authorization = `Bearer ${await token(client)}`
    socket.write(
      `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: ${authorization}\r\nX-Answer: ${answer}\r\n\r\n`,
    )
    return socket
  }

  /** Sends a request and leaves: after the first bytes of the response, or before them. */
  async function leave(answer: string): Promise<void> {
    const seen = upstream.seen.length
    const socket = await leaving(gateway.port, answer)
    if (answer === 'slow') await new Promise((resolve) => socket.once('data', resolve))
    else await until('the upstream is asked', () => upstream.seen.length > seen)
    socket.destroy()
  }

  it.each([
    ['before a response began', 'never'],
    ['a begun response', 'slow'],
  ])('a call whose caller leaves %s counts, because the upstream has it', async (_, answer) => {
    await leave(answer)
    await until('the gateway notices', () => upstream.sockets() === 0)
    await expectCounted(1)
  })

  it('a call whose caller leaves while it waits for a connection is settled once', async () => {
    const narrow = await start({ maxConnections: 1 }, '30s')
    const asked = upstream.seen.length
    const [first, second] = [await leaving(narrow.port, 'never'), await leaving(narrow.port, 'never')]
    const waiting = async () => (await call(narrow.adminPort, { path: '/metrics' })).body
    await until('one is sent and one waits', async () =>
      (await waiting()).includes('sluice_upstream_queue{upstream="data"} 1'),
    )
    second.destroy()
    await until('it has left', async () =>
      (await waiting()).includes('sluice_upstream_queue{upstream="data"} 0'),
    )
    first.destroy()
    expect(upstream.seen.length).toBe(asked + 1)
    await expectCounted(1, narrow)
  })

  it('a call that was refused, or has no limit that counts only success, counts', async () => {
    await ask(path, '200')
    expect((await ask('/none', '200')).status).toBe(429)
    expect((await ask('/all', '500')).status).toBe(500)
    await expectCounted(1)
  })
})
