import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { get, startFront } from '../helpers/front.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TIMES = 20
const MAX = 8
const head = (method: string, path: string, more = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
const long = (body: string) => head('POST', '/hang', 'Content-Length: 200000\r\n') + body

const WAYS: readonly (readonly [how: string, sends: string, leaves: (socket: Socket) => unknown])[] = [
  ['closes before the answer', head('GET', '/hang'), (socket) => socket.destroy()],
  ['resets before the answer', head('GET', '/hang'), (socket) => socket.resetAndDestroy()],
  ['ends its side before the answer', head('GET', '/hang'), (socket) => socket.end()],
  ['closes within a short body', long('begun'), (socket) => socket.destroy()],
  ['closes within a long body', long('x'.repeat(100_000)), (socket) => socket.destroy()],
  ['resets within the answer', head('GET', '/half'), (socket) => socket.resetAndDestroy()],
  ['closes within the answer', head('GET', '/half'), (socket) => socket.destroy()],
]

it.each(WAYS)('a caller that %s leaves nothing behind', async (_, sends, leaves) => {
  const back = await startRawUpstream((socket, first) => {
    const text = first.toString()
    if (text.includes(' /now ')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    if (text.includes(' /half ')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf')
  })
  const front = await startFront(back.url, { maxConnections: MAX })
  const { port, outcomes } = front
  // More than there are sockets: some leave while they wait for one.
  for (let round = 0; round < TIMES / MAX; round++) {
    const before = outcomes.length
    const callers = Array.from({ length: MAX }, () => {
      const socket = connect(port, '127.0.0.1', () => socket.write(sends)).on('error', () => {})
      closeLater(() => socket.destroy())
      return socket
    })
    await until('all have come', () => front.requests() === before + MAX)
    if (!sends.endsWith('begun')) await until('they have sockets', () => back.sockets() >= MAX / 4)
    if (sends.includes('/half'))
      await until('an answer', () => callers.some((socket) => socket.bytesRead > 0))
    for (const socket of callers) leaves(socket)
    await until('all have left', () => outcomes.length === before + MAX)
  }
  expect(new Set(outcomes.map(({ outcome }) => outcome))).toEqual(new Set(['left']))
  await until('no socket upstream', () => back.sockets() === 0)
  const ask = (caller: number) => get(port, '/now', { headers: { 'X-Caller': String(caller) } })
  const answers = await Promise.all(Array.from({ length: MAX }, (_, i) => ask(i % 2)))
  expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: MAX }, () => 200))
})

it.each(['Connection: close\r\n', ''])(
  'an upstream that answers early and takes no more of a body that is whole holds no socket; %j',
  async (fields) => {
    const back = await startRawUpstream((socket) => {
      socket.pause()
      socket.write(`HTTP/1.1 200 OK\r\n${fields}Content-Length: 2\r\n\r\nok`)
    })
    // More than the system holds on the way.
    const body = Buffer.alloc(30_000_000, 'x')
    const headers = '\r\nhost: a'
    const { port } = await startFront(
      back.url,
      { maxConnections: 1, timeoutMs: 2000 },
      { headers, body, bodyLength: body.length },
    )
    for (let i = 0; i < 3; i++) expect((await get(port, '/', { method: 'POST' })).status).toBe(200)
  },
)
