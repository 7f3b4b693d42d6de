import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, describe, expect, it } from 'vitest'
import { createKeepAliveEstimate } from '../../src/upstream/addresses.ts'
import { get, startFront } from '../helpers/front.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const closers: (() => unknown)[] = []
afterAll(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n'

/** Responds to each request with these fields, and closes sockets that are idle for this time, the first one perhaps earlier. */
async function closing(afterMs: number, fields = '', firstAfterMs = afterMs) {
  const timers = new WeakMap<Socket, NodeJS.Timeout>()
  let connections = 0
  const back = await startRawUpstream((socket, _, connection) => {
    connections = Math.max(connections, connection)
    if (!timers.has(socket)) socket.on('close', () => clearTimeout(timers.get(socket)))
    clearTimeout(timers.get(socket))
    socket.write(`${ANSWER}${fields}\r\nok`)
    timers.set(
      socket,
      setTimeout(() => socket.end(), connection === 1 ? firstAfterMs : afterMs),
    )
  })
  closers.push(back.close)
  return { ...back, connections: () => connections }
}

async function front(...args: Parameters<typeof startFront>) {
  const started = await startFront(...args)
  closers.push(started.close)
  return started
}

describe.concurrent('an idle socket', () => {
  it('is not trusted with what cannot be sent again, unless it was used just before', async () => {
    const back = await closing(60_000)
    const { port } = await front(back.url)
    const post = () => get(port, '/', { method: 'POST' }, 'x')
    await post()
    await post()
    expect(back.connections()).toBe(1)
    await sleep(600)
    await get(port)
    expect(back.connections()).toBe(1)
    await sleep(600)
    await post()
    expect(back.connections()).toBe(2)
  })

  it('is trusted for as long as the upstream says', async () => {
    const back = await closing(60_000, 'Keep-Alive: timeout=9\r\n')
    const { port } = await front(back.url)
    await get(port)
    await sleep(600)
    expect((await get(port, '/', { method: 'DELETE' })).status).toBe(200)
    expect(back.connections()).toBe(1)
  })

  it('is not used where the upstream has said something unasked', async () => {
    let connections = 0
    const back = await startRawUpstream((socket, _, connection) => {
      connections = connection
      socket.write(`${ANSWER}\r\nok`)
      setTimeout(() => socket.write('HTTP/1.1 408 Request Timeout\r\n\r\n'), 50)
    })
    closers.push(back.close)
    const { port } = await front(back.url)
    await get(port)
    await sleep(300)
    await get(port)
    expect(connections).toBe(2)
  })

  it('is not used for longer than the upstream announces, also if that is short', async () => {
    const back = await closing(60_000, 'Keep-Alive: timeout=1\r\n')
    const { port } = await front(back.url)
    await get(port)
    await get(port)
    expect(back.connections()).toBe(1)
    await sleep(600)
    await get(port)
    expect(back.connections()).toBe(2)
  })

  it('is not trusted for more than half of the time after which the upstream was seen to close one', async () => {
    const back = await closing(60_000, '', 600)
    const { port } = await front(back.url)
    const post = () => get(port, '/', { method: 'POST' }, 'x')
    await post()
    await until('the upstream closes it', () => back.sockets() === 0)
    for (let i = 0; i < 20; i++) await post()
    const used = back.connections()
    expect(used).toBeLessThan(20)
    await sleep(400)
    await post()
    expect(back.connections()).toBe(used + 1)
    // What can be sent again still takes it.
    await sleep(400)
    await get(port)
    expect(back.connections()).toBe(used + 1)
  })

  it('is not trusted for more than half of the time after which one died under a request', async () => {
    let connections = 0
    const back = await startRawUpstream((socket, first, connection) => {
      connections = connection
      if (connection === 1 && first.includes('POST')) socket.resetAndDestroy()
      else socket.write(`${ANSWER}\r\nok`)
    })
    closers.push(back.close)
    const { port } = await front(back.url)
    const post = () => get(port, '/', { method: 'POST' }, 'x')
    await get(port)
    await sleep(300)
    expect((await post()).status).toBe(502)
    await post()
    await sleep(450)
    await post()
    expect(connections).toBe(3)
  })
})

describe('the time for which idle sockets are kept', () => {
  const clocked = () => {
    const clock = { ms: 1000 }
    return { clock, estimate: createKeepAliveEstimate(() => clock.ms) }
  }

  it('is the shortest that was seen', () => {
    const { estimate } = clocked()
    expect(estimate.ms()).toBe(Number.POSITIVE_INFINITY)
    for (const ms of [400, 300, Number.POSITIVE_INFINITY, 350]) estimate.record(ms)
    expect(estimate.ms()).toBe(300)
  })

  it('is not learned from a socket that was just used', () => {
    const { estimate } = clocked()
    estimate.record(99)
    expect(estimate.ms()).toBe(Number.POSITIVE_INFINITY)
    estimate.record(100)
    expect(estimate.ms()).toBe(100)
  })

  it('is measured again after a minute or two without a sample, but not forgotten without one', () => {
    const { clock, estimate } = clocked()
    estimate.record(300)
    clock.ms += 3_600_000
    expect(estimate.ms()).toBe(300)
    estimate.record(Number.POSITIVE_INFINITY)
    expect(estimate.ms()).toBe(300)
    clock.ms += 59_999
    estimate.record(Number.POSITIVE_INFINITY)
    expect(estimate.ms()).toBe(300)
    clock.ms += 1
    estimate.record(900)
    expect(estimate.ms()).toBe(900)
  })
})
