import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { resetSlowReaders } from '../../src/downstream/listener/sockets.ts'
import { startFront } from '../helpers/front.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Made before the time is measured. */
const LARGE = Buffer.alloc(30_000_000, 'x')
const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'

/** A caller that asks and does not read. */
function ask(port: number, text: string): Socket {
  const socket = connect(port, '127.0.0.1')
    .pause()
    .on('error', () => {})
  socket.write(text)
  closeLater(() => socket.destroy())
  return socket
}

const tooLittle = (ms: number) => new Error(`the caller read too little for ${ms} ms`)

async function answering(bytes: number, timeoutMs = 1000, slowReaderMs = timeoutMs) {
  const back = await startUpstream((_, response) => response.end(LARGE.subarray(0, bytes)))
  const front = await startFront(back.url, { timeoutMs })
  const sockets = new Set<Socket>()
  front.server.on('connection', (socket) => sockets.add(socket))
  resetSlowReaders(sockets, slowReaderMs)
  return { back, ...front }
}

it.concurrent('a caller that does not read times out, is logged as one that left, and its upstream socket is free', async () => {
  const { back, port, outcomes } = await answering(30_000_000)
  ask(port, GET)
  await until('the outcome', () => outcomes.length === 1)
  expect(outcomes).toMatchObject([{ outcome: 'left', response: { errored: tooLittle(1000) } }])
  expect(outcomes[0]!.error).toBeUndefined()
  await until('no socket upstream', () => back.sockets() === 0)
})

it.concurrent('a caller that does not read has a timeout of its own, which may be longer than that of the upstream', async () => {
  const { port, outcomes } = await answering(30_000_000, 800, 1600)
  ask(port, GET)
  await until('the outcome', () => outcomes.length === 1)
  expect(outcomes).toMatchObject([{ outcome: 'left', response: { errored: tooLittle(1600) } }])
})

it.concurrent('a slow reader whose progress the kernel reports later than the timeout gets the whole response', async () => {
  const { port, outcomes } = await answering(5_000_000, 1000, 10_000)
  const socket = ask(port, GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))
  // 64 kB each 60 ms: some 1.1 MB a second, which the system may report by 1.4 MB.
  socket.on('data', () => {
    socket.pause()
    setTimeout(() => socket.resume(), 60)
  })
  socket.resume()
  await until('the end', () => socket.readableEnded)
  expect(socket.bytesRead).toBeGreaterThan(5_000_000)
  expect(outcomes).toMatchObject([{ outcome: 'answered' }])
})
