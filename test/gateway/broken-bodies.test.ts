import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { startLogging, token } from '../helpers/gateway.ts'
import { statuses } from '../helpers/raw.ts'
import { startRedis } from '../helpers/redis.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** All bytes that reached the upstream. */
let reached = ''
const back = await startRawUpstream((socket, data) => {
  reached += data.toString('latin1')
  if (data.includes('/early')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun')
})
const redis = await startRedis()
const gateway = await startLogging({
  data: back.url,
  limit: 10,
  store: { redis: { url: redis.url }, timeout: '20s' },
  listen: { requestTimeout: '1s', headersTimeout: '1s' },
  routes: [
    { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  ],
  more: { par: { issuer: 'https://identity.example.com/oidc' } },
})

let number = 100
/** Connects a caller that has sent the head of a chunked request and the first chunk. */
async function begun(path: string) {
  const id = `case-${++number}`
  const fields = [
    'Host: a',
    `Authorization: Bearer ${await token(id)}`,
    `X-Request-Id: ${id}`,
    'Content-Type: application/x-www-form-urlencoded',
    'Transfer-Encoding: chunked',
  ]
  const socket = connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true })
  closeLater(() => socket.destroy())
  let said = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
  socket.write(`POST ${path} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n1\r\na\r\n`)
  return {
    id,
    socket,
    said: () => said,
    body: () => JSON.parse(said.slice(said.indexOf('\r\n\r\n') + 4)) as Record<string, unknown>,
    closed: () => until('the socket is closed', () => socket.readableEnded || socket.destroyed),
  }
}
/** Waits for the log line of a request. */
async function lineOf(id: string): Promise<Record<string, unknown>> {
  const find = () => gateway.lines().filter((line) => line['requestId'] === id)
  await until('its line', () => find().length > 0)
  expect(find()).toHaveLength(1)
  return find()[0]!
}

const BREAKS: readonly (readonly [
  how: string,
  status: number,
  code: string,
  breaks: (socket: Socket) => unknown,
])[] = [
  ['has a bad chunk', 400, 'BadRequest', (socket) => socket.write('zz\r\n')],
  ['ends with its sender', 400, 'BadRequest', (socket) => socket.end()],
  ['does not end in time', 408, 'RequestTimeout', () => {}],
  [
    'has a chunk extension of 20 kB',
    413,
    'PayloadTooLarge',
    (socket) => socket.write(`1;${'x'.repeat(20_000)}`),
  ],
  [
    'has trailers of 20 kB',
    431,
    'HeaderFieldsTooLarge',
    (socket) => socket.write(`0\r\nA: ${'x'.repeat(20_000)}`),
  ],
]

describe.concurrent('a body that', () => {
  it.each(BREAKS)(
    '%s gets a %i in the format of the Data API, and is counted',
    async (_, status, code, breaks) => {
      const caller = await begun('/v3/upload')
      breaks(caller.socket)
      await caller.closed()
      expect(statuses(caller.said())).toEqual([status])
      expect(caller.said()).toMatch(/^X-RateLimit-Limit: 10\r\nX-RateLimit-Remaining: 9\r$/m)
      expect(caller.said().match(/^Connection: .*/gm)).toEqual(['Connection: close'])
      expect(caller.said()).toMatch(/^Content-Type: application\/problem\+json\r$/m)
      const line = await lineOf(caller.id)
      expect(caller.body()).toMatchObject({ status, code, correlationId: caller.id })
      expect(line).toMatchObject({
        status,
        code,
        source: 'gateway',
        decision: 'admitted',
        cause: expect.any(String),
      })
      expect(line).not.toHaveProperty('incomplete')
    },
  )

  it.each(BREAKS)('%s gets a %i in the format of OAuth if it was forwarded', async (...way) => {
    await expectOAuthAnswer('/oidc/upload', way)
  })
  it.each(BREAKS)('%s gets a %i in the format of OAuth if it was pushed', async (...way) => {
    await expectOAuthAnswer('/oidc/request', way)
  })

  async function expectOAuthAnswer(path: string, [, status, code, breaks]: (typeof BREAKS)[number]) {
    const caller = await begun(path)
    breaks(caller.socket)
    await caller.closed()
    expect(statuses(caller.said())).toEqual([status])
    expect(caller.said().match(/^Connection: .*/gm)).toEqual(['Connection: close'])
    expect(caller.body()).toEqual({ error: 'invalid_request', error_description: expect.any(String) })
    expect(await lineOf(caller.id)).toMatchObject({ status, code, source: 'gateway' })
  }
})

describe('a body that', () => {
  it('breaks off in flight never looks complete to the upstream, whose socket is freed', async () => {
    const caller = await begun('/v3/long')
    caller.socket.write(`${(100_000).toString(16)}\r\n${'x'.repeat(100_000)}`)
    await until('it is in flight', () => reached.includes(caller.id))
    caller.socket.write('\r\nzz\r\n')
    await caller.closed()
    expect(statuses(caller.said())).toEqual([400])
    await until('the upstream is free', () => back.sockets() === 0)
    expect(reached.slice(reached.indexOf(caller.id))).not.toContain('\r\n0\r\n')
  })

  it('breaks off while the limiter decides is counted, but not forwarded', async () => {
    redis.freeze()
    const caller = await begun('/v3/waits')
    caller.socket.write('zz\r\n')
    await new Promise((resolve) => setTimeout(resolve, 100))
    expect(caller.said()).toBe('')
    redis.thaw()
    await caller.closed()
    expect(statuses(caller.said())).toEqual([400])
    expect(caller.said()).toMatch(/^X-RateLimit-Remaining: 9\r$/m)
    expect(await lineOf(caller.id)).toMatchObject({ status: 400, decision: 'admitted' })
    expect(reached).not.toContain(caller.id)
  })

  it('breaks off after the response began truncates the response', async () => {
    const caller = await begun('/v3/early')
    caller.socket.write(`${(100_000).toString(16)}\r\n${'x'.repeat(100_000)}`)
    await until('the answer begins', () => caller.said().endsWith('begun'))
    caller.socket.write('\r\nzz\r\n')
    await caller.closed()
    expect(caller.said()).toMatch(/begun$/)
    expect(await lineOf(caller.id)).toMatchObject({ status: 200, code: 'BadRequest', incomplete: 'cut' })
  })

  it('continues after a refusal does not prevent its sender from reading the response', async () => {
    const caller = await begun('/v3/upload')
    caller.socket.write('zz\r\n')
    for (let i = 0; i < 50; i++) {
      caller.socket.write('x'.repeat(100_000))
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    await until('the answer', () => statuses(caller.said()).length > 0)
    expect(statuses(caller.said())).toEqual([400])
    expect(caller.socket.errored).toBeNull()
  })
})
