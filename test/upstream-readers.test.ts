import { connect, type Socket } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { startFront } from './helpers/front.ts'
import { startUpstream } from './helpers/upstream.ts'
import { until } from './helpers/wait.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'

/** A caller that asks and does not read. */
function ask(port: number, text: string): Socket {
  const socket = connect(port, '127.0.0.1')
    .pause()
    .on('error', () => {})
  socket.write(text)
  closers.push(() => socket.destroy())
  return socket
}

async function answering(bytes: number, timeoutMs = 300) {
  const back = await startUpstream((_, response) => response.end(Buffer.alloc(bytes, 'x')))
  closers.push(back.close)
  const front = await startFront(back.url, { timeoutMs })
  closers.push(front.close)
  return { back, ...front }
}

it('a caller that does not read is given up, is told of as one, and its upstream socket is free', async () => {
  const { back, port, outcomes } = await answering(30_000_000)
  ask(port, GET)
  await until('the outcome', () => outcomes.length === 1)
  expect(outcomes).toMatchObject([{ outcome: 'left', givenUp: 'the caller read too little for 300 ms' }])
  expect(outcomes[0]).not.toHaveProperty('error')
  await until('no socket upstream', () => back.sockets() === 0)
})

it('so is one that does not read the last of an answer that has come whole', async () => {
  const { port, outcomes } = await answering(60_000, 2000)
  ask(port, GET.repeat(250))
  await until('the outcomes', () => outcomes.length === 250)
  const ends = new Set(outcomes.map(({ outcome, givenUp = '' }) => `${outcome} ${givenUp}`))
  expect(ends).toContain('left the caller read too little for 2000 ms')
  expect(outcomes.map(({ outcome }) => outcome)).not.toContain('cut')
})

it('a caller that reads slowly gets all of it', async () => {
  const { port, outcomes } = await answering(10_000_000)
  const socket = ask(port, GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))
  let received = 0
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length
    socket.pause()
    setTimeout(() => socket.resume(), 2)
  })
  socket.resume()
  await until('the end', () => socket.readableEnded)
  expect(received).toBeGreaterThan(10_000_000)
  expect(outcomes).toMatchObject([{ outcome: 'answered' }])
})
