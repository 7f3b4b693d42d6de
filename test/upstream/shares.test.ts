import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { get, startFront } from '../helpers/front.ts'
import { startGateway } from '../helpers/gateway.ts'
import { deadUrl } from '../helpers/ports.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** An upstream that answers `/now` at once and everything else never, behind a gateway with few sockets. */
async function patient(maxConnections: number, timeoutMs = 5000) {
  const asked: string[] = []
  const back = await startRawUpstream((socket, first) => {
    const [line = ''] = first.toString().split(' HTTP/')
    if (!/^[A-Z]+ \//.test(line)) return
    asked.push(line)
    if (line.endsWith('/now')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  })
  const front = await startFront(back.url, { maxConnections, timeoutMs })
  return { back, asked, ...front }
}

/** Request of a caller that then waits. */
function send(port: number, caller: string, path: string, length = 0, body = ''): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  const method = length > 0 ? `POST ${path} HTTP/1.1\r\nContent-Length: ${length}` : `GET ${path} HTTP/1.1`
  socket.write(`${method}\r\nHost: a\r\nX-Caller: ${caller}\r\n\r\n${body}`)
  closeLater(() => socket.destroy())
  return socket
}

const now = (port: number, caller: string) => get(port, '/now', { headers: { 'X-Caller': caller } })
const MUCH = 'x'.repeat(100_000)

it('a caller whose connections fail keeps its share of the sockets', async () => {
  const { port } = await startFront(await deadUrl(), { maxConnections: 1, timeoutMs: 5000 })
  for (let i = 0; i < 3; i++) expect((await now(port, 'a')).status).toBe(502)
})

describe('senders of slow bodies', () => {
  it('senders of slow short bodies hold no socket of the upstream until their body is complete, also if they are many', async () => {
    const back = await startUpstream()
    const front = await startFront(back.url, { maxConnections: 2 })
    const slow = Array.from({ length: 20 }, (_, i) => send(front.port, `caller ${i % 3}`, '/', 10, 'begun'))
    for (let i = 0; i < 5; i++) expect((await now(front.port, 'caller 0')).status).toBe(200)
    expect(back.seen).toHaveLength(5)
    expect(back.sockets()).toBeLessThanOrEqual(2)
    slow[7]!.write('ended')
    await until('its answer', () => back.seen.length === 6)
    expect(back.seen[5]!.body.toString()).toBe('begunended')
  })

  it('senders of slow long bodies hold at most half of the sockets, and one caller half of those', async () => {
    const { back, port, asked } = await patient(8)
    for (let i = 0; i < 6; i++) send(port, 'a', '/a', 200_000, MUCH)
    await until('two of the first caller', () => asked.length === 2)
    for (let i = 0; i < 6; i++) send(port, `other ${i}`, '/b', 200_000, MUCH)
    await until('four uploads', () => asked.length === 4)
    for (let i = 0; i < 5; i++) expect((await now(port, 'a')).status).toBe(200)
    expect(asked.filter((line) => line.startsWith('POST'))).toEqual([
      'POST /a',
      'POST /a',
      'POST /b',
      'POST /b',
    ])
    expect(back.sockets()).toBe(5)
  })

  it('an upload frees its place when its body is complete, before its response', async () => {
    const { port, asked, requests } = await patient(2)
    const first = send(port, 'a', '/a', 200_000, MUCH)
    await until('the first upload', () => asked.length === 1)
    send(port, 'b', '/b', 200_000, MUCH)
    await until('the second has come', () => requests() === 2)
    expect(asked).toEqual(['POST /a'])
    first.write(MUCH)
    await until('the second upload', () => asked.length === 2)
  })

  it('an upload frees its place once, also if its response comes later', async () => {
    const sent = new Map<Socket, number>()
    let uploads = 0
    const back = await startRawUpstream((socket, chunk) => {
      if (chunk.subarray(0, 4).toString() === 'POST') uploads++
      sent.set(socket, (sent.get(socket) ?? 0) + chunk.length)
      if (sent.get(socket)! > 2 * MUCH.length || chunk.subarray(0, 3).toString() === 'GET') {
        sent.set(socket, 0)
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
      }
    })
    const { port, outcomes, requests } = await startFront(back.url, { maxConnections: 2 })
    for (let i = 1; i <= 2; i++) {
      const upload = send(port, 'a', '/a', 2 * MUCH.length, MUCH)
      await until('its first half', () => uploads === i)
      upload.write(MUCH)
      await until('its answer', () => outcomes.length === i)
    }
    for (const caller of ['a', 'b']) send(port, caller, '/a', 2 * MUCH.length, MUCH)
    await until('one upload, and another that waits', () => uploads === 3 && requests() === 4)
    expect((await now(port, 'c')).status).toBe(200)
    expect(uploads).toBe(3)
  })
})

describe('one caller', () => {
  it('one caller holds at most half of the sockets, also if the others hold none', async () => {
    const { back, port, asked } = await patient(4)
    const mine = Array.from({ length: 4 }, () => send(port, 'a', '/hang'))
    await until('half of them', () => asked.length === 2)
    for (let i = 0; i < 5; i++) expect((await now(port, 'b')).status).toBe(200)
    expect(asked.filter((line) => line === 'GET /hang')).toHaveLength(2)
    expect(back.sockets()).toBe(3)
    // Its own have to wait for its own.
    mine[0]!.destroy()
    mine[1]!.destroy()
    await until('the next two', () => asked.filter((line) => line === 'GET /hang').length === 4)
  })

  it('one caller has at most half of the queue, and the others are served in their order', async () => {
    const { port, asked, outcomes, requests } = await patient(4)
    // Two have sockets, and half of 32 places are theirs.
    for (let i = 0; i < 20; i++) send(port, 'a', '/hang')
    await until('two are refused', () => outcomes.length === 2)
    expect(outcomes.map(({ error }) => error?.status)).toEqual([503, 503])
    const holding = [send(port, 'b', '/b'), send(port, 'c', '/c')]
    await until('all sockets are taken', () => asked.length === 4)
    const answers: string[] = []
    for (const caller of ['d', 'e']) {
      const before = requests()
      void now(port, caller).then(() => answers.push(caller))
      // The order is that of arrival.
      await until('it has come', () => requests() === before + 1)
    }
    expect(answers).toEqual([])
    holding[0]!.destroy()
    await until('both are served', () => answers.length === 2)
    expect(answers).toEqual(['d', 'e'])
  })

  it('a caller gets a 503 with Retry-After if no socket becomes free', async () => {
    const back = await startRawUpstream(() => {})
    const gateway = await startGateway({
      data: back.url,
      upstream: { maxConnections: 1 },
      routes: [
        { match: '/held', upstream: 'data', authenticate: 'none', timeout: '1h' },
        { match: '/*', upstream: 'data', authenticate: 'none', timeout: '500ms' },
      ],
      limits: {},
    })
    const ask = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`
    const holder = connect(gateway.port, '127.0.0.1')
    holder.on('error', () => {}).write(ask('/held'))
    await until('the only socket is held', () => back.sockets() === 1)
    const { text } = await raw(gateway.port, ask('/'))
    expect(statuses(text)).toEqual([503])
    expect(text).toMatch(/^Retry-After: 1\r$/m)
    holder.destroy()
    await until('no socket upstream', () => back.sockets() === 0)
  })
})

it('a client may send at once all that a limit of 1000 allows', async () => {
  const held: (() => void)[] = []
  let holding = true
  const back = await startUpstream((_, response) => {
    const answer = () => void response.end('ok')
    if (holding) held.push(answer)
    else answer()
  })
  const { port, requests } = await startFront(back.url, { timeoutMs: 60_000 })
  const answers = Promise.all(Array.from({ length: 1000 }, () => now(port, 'a')))
  await until('all have come', () => requests() === 1000)
  holding = false
  for (const answer of held) answer()
  expect((await answers).filter(({ status }) => status !== 200)).toEqual([])
  expect(back.seen).toHaveLength(1000)
})
