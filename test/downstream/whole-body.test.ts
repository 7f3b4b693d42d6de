import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { expect, it, vi } from 'vitest'
import { readBody } from '../../src/downstream/whole-body.ts'
import { listenLocally } from '../helpers/local-server.ts'

it.each([
  ['in one-byte chunks', 20_000, 1],
  ['in odd chunks', 64_000, 977],
  ['of exactly maxBody', 65_536, 65_536],
])('reads a chunked body %s byte for byte, in memory of its own size', async (_, bytes, step) => {
  const sent = Buffer.from(Array.from({ length: bytes }, (_, i) => i % 251))
  const server = createServer()
  const { port } = await listenLocally(server)
  const socket = connect(port, '127.0.0.1')
  socket.write('POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n')
  for (let i = 0; i < bytes; i += step) {
    const chunk = sent.subarray(i, i + step)
    socket.write(Buffer.concat([Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n')]))
  }
  socket.end('0\r\n\r\n')
  const [, response] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
  const body = (await readBody(response, 65_536, '192.0.2.1')) as Buffer
  expect(body.equals(sent)).toBe(true)
  expect(body.buffer.byteLength).toBeLessThanOrEqual(65_536)
})

it('a body that does not arrive in time gets a 408', async () => {
  const server = createServer()
  const { port } = await listenLocally(server)
  const socket = connect(port, '127.0.0.1')
  socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab')
  const [, response] = (await once(server, 'request')) as [IncomingMessage, ServerResponse]
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  const read = readBody(response, 65_536, '192.0.2.1')
  vi.advanceTimersByTime(10_000)
  vi.useRealTimers()
  expect(await read).toMatchObject({ status: 408 })
})
