import { request as httpRequest } from 'node:http'
import type { Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { get, startFront } from '../helpers/front.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

/** A server with nothing but `forward` in it, in front of an upstream. */
async function front(...args: Parameters<typeof startFront>) {
  const started = await startFront(...args)
  closers.push(started.close)
  return started
}

async function upstream(...args: Parameters<typeof startUpstream>) {
  const started = await startUpstream(...args)
  closers.push(started.close)
  return started
}

async function rawUpstream(talk: Parameters<typeof startRawUpstream>[0]) {
  const started = await startRawUpstream(talk)
  closers.push(started.close)
  return started
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

describe('streams both ways', () => {
  it('keeps method, target, body, status, reason, header spelling and every Set-Cookie', async () => {
    const back = await upstream((_, response) => {
      response.writeHead(207, 'Odd Reason', [
        'X-Odd',
        '1',
        'Set-Cookie',
        'a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT',
        'Set-Cookie',
        'b=2',
        'Location',
        '/x//y?z',
      ])
      response.end('hello')
    })
    const { port } = await front(back.url)
    const got = await get(
      port,
      '/a//b/http:/c?x=//../%2f',
      { method: 'PATCH', headers: { 'X-One': '1' } },
      'body',
    )
    expect(got).toMatchObject({ status: 207, body: 'hello', whole: true })
    expect(got.rawHeaders).toEqual(expect.arrayContaining(['X-Odd', '1', 'Location', '/x//y?z']))
    expect(got.headers['set-cookie']).toEqual(['a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT', 'b=2'])
    expect(back.seen).toHaveLength(1)
    expect(back.seen[0]).toMatchObject({ method: 'PATCH', url: '/a//b/http:/c?x=//../%2f' })
    expect(back.seen[0]!.body.toString()).toBe('body')
  })

  it('carries large bodies of both kinds, either way, whole', async () => {
    const back = await upstream((_, response, body) => response.end(body))
    const { port } = await front(back.url)
    const big = 'x'.repeat(900_000)
    expect((await get(port, '/', { method: 'POST' }, big)).body).toBe(big)
    const chunked = await get(port, '/', { method: 'POST', headers: { 'Transfer-Encoding': 'chunked' } }, big)
    expect(chunked.body).toBe(big)
  })
})

describe('known weaknesses of http-proxy', () => {
  it('#5: rewrites the path that was decided on', async () => {
    const back = await upstream()
    const { port } = await front(back.url)
    for (const path of ['//a', '/a//b', '/x/http:/y', '/https:/z?a=http:/b//c']) await get(port, path)
    expect(back.seen.map(({ url }) => url)).toEqual(['//a', '/a//b', '/x/http:/y', '/https:/z?a=http:/b//c'])
  })

  it.each([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHELLO', 200],
    ['GET', 'HTTP/1.1 204 No Content\r\n\r\nHELLO', 204],
    ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nHELLO', 304],
  ])(
    'a response to %s that is complete with its head stays complete, also before %j',
    async (method, bytes, status) => {
      const back = await rawUpstream((socket) => socket.write(bytes))
      const { port, outcomes } = await front(back.url)
      expect(await get(port, '/', { method })).toMatchObject({ status, body: '' })
      expect(outcomes).toMatchObject([{ outcome: 'answered' }])
      await until('no socket upstream', () => back.sockets() === 0)
    },
  )

  it.each([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'],
    ['GET', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n'],
    ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n'],
  ])('never reuses a socket whose answer to %s announced a body: %j', async (method, bytes) => {
    const connections = new Set<number>()
    const back = await rawUpstream((socket, _, connection) => {
      connections.add(connection)
      socket.write(connection === 1 ? bytes : 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    })
    const { port } = await front(back.url)
    await get(port, '/', { method })
    expect(await get(port)).toMatchObject({ status: 200, body: 'ok' })
    expect(connections.size).toBe(2)
  })

  it('passes a head on before its body comes', async () => {
    const back = await rawUpstream((socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n'))
    const { port } = await front(back.url)
    const { text } = await raw(port, GET, (sofar) => sofar.includes('\r\n\r\n'))
    expect(text).toContain('HTTP/1.1 200 OK')
  })

  it('503 where every socket and every place in the queue is taken', async () => {
    const back = await rawUpstream(() => {})
    const { port, outcomes } = await front(back.url, { maxConnections: 2, timeoutMs: 300 })
    const ask = (caller: string) => get(port, '/', { headers: { 'X-Caller': caller } })
    const answers = Promise.all(Array.from({ length: 20 }, (_, i) => ask(i % 2 === 0 ? 'a' : 'b')))
    // Two are asked and silent, sixteen wait for their sockets, two are refused at once.
    await until('two are refused', () => outcomes.length === 2)
    expect(outcomes.map(({ error }) => error?.status)).toEqual([503, 503])
    expect((await answers).filter(({ status }) => status === 504).length).toBeGreaterThanOrEqual(2)
    await until('no socket upstream', () => back.sockets() === 0)
  })
})

describe('bodies', () => {
  it('cuts a chunked body at maxBody with 413, and the upstream never sees it whole', async () => {
    const back = await upstream()
    const { port } = await front(back.url, {}, { maxBody: 1000 })
    const got = await get(
      port,
      '/',
      { method: 'POST', headers: { 'Transfer-Encoding': 'chunked' } },
      'x'.repeat(5000),
    )
    expect(got.status).toBe(413)
    expect(back.seen).toEqual([])
  })

  it('waits for a slow sender as long as something may still come', async () => {
    const back = await upstream()
    const { port } = await front(back.url, { timeoutMs: 200 })
    const answer = new Promise<number>((resolve) => {
      const request = httpRequest({ port, method: 'POST', agent: false }, (response) => {
        response.resume()
        resolve(response.statusCode!)
      })
      request.write('a')
      setTimeout(() => request.end('b'), 500)
    })
    expect(await answer).toBe(200)
  })

  it('passes on an early answer and closes, so that the rest of the body does not become a request', async () => {
    const back = await rawUpstream((socket, first) => {
      if (first.includes('POST')) socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
    })
    const { port } = await front(back.url)
    const { text, closed } = await raw(
      port,
      `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n${'x'.repeat(100_000)}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n`,
    )
    expect(statuses(text)).toEqual([403])
    expect(text).toMatch(/connection: close/i)
    expect(closed).toBe(true)
  })
})

describe('retries', () => {
  /** Answers the first request on each socket and drops the second unanswered, as a server that just closed it. */
  const oncePerSocket = () => {
    const requests: string[] = []
    const served = new WeakSet<Socket>()
    const started = rawUpstream((socket, first) => {
      requests.push(first.toString().split(' ', 1)[0]!)
      if (served.has(socket)) {
        socket.destroy()
        return
      }
      served.add(socket)
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    })
    return started.then((back) => ({ back, requests }))
  }

  it('asks once more for a GET whose reused socket died unanswered', async () => {
    const { back, requests } = await oncePerSocket()
    const { port } = await front(back.url)
    for (let i = 0; i < 4; i++) expect((await get(port)).status).toBe(200)
    expect(requests.length).toBeGreaterThan(4)
  })

  it('never sends anything else twice', async () => {
    const { back, requests } = await oncePerSocket()
    const { port } = await front(back.url)
    expect((await get(port)).status).toBe(200)
    expect((await get(port, '/', { method: 'POST' }, 'x')).status).toBe(502)
    expect((await get(port)).status).toBe(200)
    expect((await get(port, '/', { method: 'DELETE' })).status).toBe(502)
    expect(requests.filter((method) => method === 'POST')).toHaveLength(1)
    expect(requests.filter((method) => method === 'DELETE')).toHaveLength(1)
  })

  it('does not ask again on a new socket', async () => {
    let requests = 0
    const back = await rawUpstream((socket) => {
      requests++
      socket.destroy()
    })
    const { port } = await front(back.url)
    expect((await get(port)).status).toBe(502)
    expect(requests).toBe(1)
  })
})
