import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { startStrictUpstream } from '../edge/strict-upstream.ts'
import { get, startFront } from '../helpers/front.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** A server with nothing but `forward` in it, in front of an upstream. */
const GET = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

describe('streaming', () => {
  it('a request and its response keep method, target, body, status, reason, header spelling and every Set-Cookie', async () => {
    const back = await startUpstream((_, response) => {
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
    const { port } = await startFront(back.url)
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

  it('large bodies with a length and in chunks arrive complete, either way', async () => {
    const back = await startUpstream((_, response, body) => response.end(body))
    const { port } = await startFront(back.url)
    const big = 'x'.repeat(900_000)
    expect((await get(port, '/', { method: 'POST' }, big)).body).toBe(big)
    const chunked = await get(port, '/', { method: 'POST', headers: { 'Transfer-Encoding': 'chunked' } }, big)
    expect(chunked.body).toBe(big)
  })
})

describe('defects of http-proxy, which do not show', () => {
  it('the path that was matched is forwarded with all its slashes', async () => {
    const back = await startUpstream()
    const { port } = await startFront(back.url)
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
      const back = await startRawUpstream((socket) => socket.write(bytes))
      const { port, outcomes } = await startFront(back.url)
      expect(await get(port, '/', { method })).toMatchObject({ status, body: '' })
      expect(outcomes).toMatchObject([{ outcome: 'answered' }])
      await until('no socket upstream', () => back.sockets() === 0)
    },
  )

  it.each([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'],
    ['GET', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n'],
    ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n'],
  ])('a socket whose response to %s announced a body is never reused: %j', async (method, bytes) => {
    const connections = new Set<number>()
    const back = await startRawUpstream((socket, _, connection) => {
      connections.add(connection)
      socket.write(connection === 1 ? bytes : 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    })
    const { port } = await startFront(back.url)
    await get(port, '/', { method })
    expect(await get(port)).toMatchObject({ status: 200, body: 'ok' })
    expect(connections.size).toBe(2)
  })

  it('the head of a response is forwarded before its body comes', async () => {
    const back = await startRawUpstream((socket) =>
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n'),
    )
    const { port } = await startFront(back.url)
    const { text } = await raw(port, GET, (sofar) => sofar.includes('\r\n\r\n'))
    expect(text).toContain('HTTP/1.1 200 OK')
  })

  it.each([
    ['whose head comes byte by byte', 'HTTP/1.1 200 OK\r\nX: ', 'x'],
    ['that sends only interim responses', '', 'HTTP/1.1 102 Processing\r\n\r\n'],
  ])('an upstream %s times out', async (_, first, next) => {
    const back = await startRawUpstream((socket) => {
      socket.write(first)
      const timer = setInterval(() => socket.write(next), 50)
      socket.on('close', () => clearInterval(timer))
    })
    const { port } = await startFront(back.url, { timeoutMs: 300 })
    expect((await get(port)).status).toBe(504)
  })

  it('a truncated response to HTTP/1.0, which ends with the socket, resets it', async () => {
    const back = await startRawUpstream((socket) =>
      socket.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n'),
    )
    const { port } = await startFront(back.url)
    const socket = connect(port, '127.0.0.1')
    socket.resume().write('GET / HTTP/1.0\r\nHost: a\r\n\r\n')
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException]
    expect(error.code).toBe('ECONNRESET')
  })

  it('a request gets a 503 if every socket and every place in the queue is taken', async () => {
    const back = await startRawUpstream(() => {})
    const { port, outcomes } = await startFront(back.url, { maxConnections: 2, timeoutMs: 300 })
    const ask = (caller: string) => get(port, '/', { headers: { 'X-Caller': caller } })
    const answers = Promise.all(Array.from({ length: 20 }, (_, i) => ask(i % 2 === 0 ? 'a' : 'b')))
    // Two are asked and silent, sixteen wait for their sockets, two are refused at once.
    await until('two are refused', () => outcomes.length === 2)
    expect(outcomes.map(({ error }) => error?.status)).toEqual([503, 503])
    expect((await answers).filter(({ status }) => status === 504).length).toBeGreaterThanOrEqual(2)
    await until('no socket upstream', () => back.sockets() === 0)
  })
})

describe('bodies of requests', () => {
  it.each(['DELETE', 'OPTIONS'])(
    'a chunked %s is forwarded whole, so that it hides no second request (CVE-2026-29057)',
    async (method) => {
      const hidden = 'GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n'
      const strict = await startStrictUpstream()
      const { port } = await startFront(strict.url, {}, { bodyLength: undefined })
      const chunks = `${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`
      const head = `${method} /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`
      await raw(port, head + chunks, answered)
      expect(strict.requests).toMatchObject([{ line: `${method} /x`, body: hidden }])
    },
  )

  it('a chunked body beyond maxBody gets a 413, and the upstream never sees it complete', async () => {
    const back = await startUpstream()
    const { port } = await startFront(back.url, {}, { maxBody: 1000 })
    const got = await get(
      port,
      '/',
      { method: 'POST', headers: { 'Transfer-Encoding': 'chunked' } },
      'x'.repeat(5000),
    )
    expect(got.status).toBe(413)
    expect(back.seen).toEqual([])
  })

  it('a slow sender has time as long as its body is not complete', async () => {
    const back = await startUpstream()
    const { port } = await startFront(back.url, { timeoutMs: 200 })
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

  it('an early response closes the socket, so that the rest of the body does not become a request', async () => {
    const back = await startRawUpstream((socket, first) => {
      if (first.includes('POST')) socket.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno')
    })
    const { port } = await startFront(back.url)
    const { text, closed } = await raw(
      port,
      `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n${'x'.repeat(100_000)}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n`,
    )
    expect(statuses(text)).toEqual([403])
    expect(text).toMatch(/connection: close/i)
    expect(closed).toBe(true)
  })
})

describe('retries of requests', () => {
  /** Answers the first request on each socket and drops the second unanswered, as a server that just closed it. */
  const oncePerSocket = () => {
    const requests: string[] = []
    const served = new WeakSet<Socket>()
    const started = startRawUpstream((socket, first) => {
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

  it('a GET whose reused socket closed without a response is sent once more', async () => {
    const { back, requests } = await oncePerSocket()
    const { port } = await startFront(back.url)
    for (let i = 0; i < 4; i++) expect((await get(port)).status).toBe(200)
    expect(requests.length).toBeGreaterThan(4)
  })

  it('a request with another method is never sent twice', async () => {
    const { back, requests } = await oncePerSocket()
    const { port } = await startFront(back.url)
    expect((await get(port)).status).toBe(200)
    expect((await get(port, '/', { method: 'POST' }, 'x')).status).toBe(502)
    expect((await get(port)).status).toBe(200)
    expect((await get(port, '/', { method: 'DELETE' })).status).toBe(502)
    expect(requests.filter((method) => method === 'POST')).toHaveLength(1)
    expect(requests.filter((method) => method === 'DELETE')).toHaveLength(1)
  })

  it('a request that failed on a new socket is not sent again', async () => {
    let requests = 0
    const back = await startRawUpstream((socket) => {
      requests++
      socket.destroy()
    })
    const { port } = await startFront(back.url)
    expect((await get(port)).status).toBe(502)
    expect(requests).toBe(1)
  })
})
