import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { get, startFront } from '../helpers/front.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n'

/** Responds to each request with these fields, and keeps its sockets. */
async function keeping(fields = '') {
  let connections = 0
  const back = await startRawUpstream((socket, _, connection) => {
    connections = Math.max(connections, connection)
    socket.write(`${ANSWER}${fields}\r\nok`)
  })
  return { ...back, connections: () => connections }
}

it('a request that ends after the upstream was replaced closes its socket', async () => {
  let answer: (() => void) | undefined
  const back = await startRawUpstream((socket) => {
    answer = () => void socket.write(`${ANSWER}\r\nok`)
  })
  const { port, closeUpstream } = await startFront(back.url)
  const got = get(port)
  await until('the request reaches the upstream', () => answer !== undefined)
  closeUpstream()
  answer!()
  expect((await got).status).toBe(200)
  await until('the socket is closed', () => back.sockets() === 0)
})

it('the idle sockets of an upstream that was replaced are closed', async () => {
  const back = await keeping()
  const { port, closeUpstream } = await startFront(back.url)
  await get(port)
  expect(back.sockets()).toBe(1)
  closeUpstream()
  // Before it expires, after four seconds.
  await until('the socket is closed', () => back.sockets() === 0, 3000)
})

describe.concurrent('an idle socket', () => {
  it('an idle socket gets a request that cannot be sent again only if it was used just before', async () => {
    const back = await keeping()
    const { port } = await startFront(back.url)
    const post = () => get(port, '/', { method: 'POST' }, 'x')
    // On a busy machine, a request may follow another late.
    await until('a request follows another at once', async () => {
      const before = back.connections()
      await post()
      return back.connections() === before
    })
    const before = back.connections()
    await sleep(600)
    await get(port)
    expect(back.connections()).toBe(before)
    await sleep(600)
    await post()
    expect(back.connections()).toBe(before + 1)
  })

  it('an idle socket on which the upstream has sent something unrequested is not used', async () => {
    let connections = 0
    const back = await startRawUpstream((socket, _, connection) => {
      connections = connection
      socket.write(`${ANSWER}\r\nok`)
      setTimeout(() => socket.write('HTTP/1.1 408 Request Timeout\r\n\r\n'), 50)
    })
    const { port } = await startFront(back.url)
    await get(port)
    await sleep(300)
    await get(port)
    expect(connections).toBe(2)
  })

  it.each([
    ['a 204', 'GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['a 304', 'GET', 'HTTP/1.1 304 Not Modified\r\n\r\n'],
    ['a 304 that announces a body', 'GET', `HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n`],
    ['a response to HEAD', 'HEAD', 'HTTP/1.1 200 OK\r\n\r\n'],
    ['a response to HEAD that announces a body', 'HEAD', `${ANSWER}\r\n`],
  ])('an idle socket is not used if a body follows %s', async (_, method, bodiless) => {
    // The second packet waits for the acknowledgement of the first, which comes with the next request on the socket, or after 40 ms.
    const back = await startRawUpstream((socket, data) => {
      const isGood = data.toString().startsWith(`${method} /good`)
      socket.write(isGood ? `${ANSWER}\r\nok` : bodiless)
      if (!isGood) setImmediate(() => socket.write(`${ANSWER}\r\nno`))
    })
    const { port } = await startFront(back.url)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const bodies: string[] = []
    for (let i = 0; i < 20; i++) {
      await get(port, '/bad', { method, agent })
      bodies.push((await get(port, '/good', { method, agent })).body)
    }
    agent.destroy()
    expect(new Set(bodies)).toEqual(new Set([method === 'HEAD' ? '' : 'ok']))
    await until('the sockets with such a body are closed', () => back.sockets() < 3)
  })

  it('a socket is used at once after a response without a body if no more sockets may be opened', async () => {
    let connections = 0
    const back = await startRawUpstream((socket, _, connection) => {
      connections = connection
      socket.write('HTTP/1.1 204 No Content\r\n\r\n')
    })
    const { port } = await startFront(back.url, { maxConnections: 2 })
    for (let i = 0; i < 10; i++) expect((await get(port)).status).toBe(204)
    // A busy machine may be slower than the rest.
    expect(connections).toBeLessThanOrEqual(2)
  })

  it('an idle socket is not used for longer than the upstream announces, also if that is short', async () => {
    const back = await keeping('Keep-Alive: timeout=1\r\n')
    const { port } = await startFront(back.url)
    await get(port)
    await get(port)
    expect(back.connections()).toBe(1)
    await sleep(600)
    await get(port)
    expect(back.connections()).toBe(2)
  })
})
