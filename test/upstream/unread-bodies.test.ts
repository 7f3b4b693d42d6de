import { describe, expect, it } from 'vitest'
import { call, startGateway } from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startUnreadServer, type UnreadServerName } from '../helpers/unread-servers.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** A whole request, and the beginning of one that the next request would complete. */
const WHOLE = 'GET /secret HTTP/1.1\r\nHost: a\r\n\r\n'
const BEGUN = 'GET /secret HTTP/1.1\r\nX: '
const SECOND = 'GET /last HTTP/1.1\r\nHost: a\r\n\r\n'
const LAST = 'GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

const start = (data: string, upstream?: object) =>
  startGateway({
    data,
    ...(upstream !== undefined && { upstream }),
    limits: {},
    routes: [
      {
        match: 'GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS,PROPFIND,QUERY /*',
        upstream: 'data',
        authenticate: 'none',
        body: true,
      },
    ],
  })

const withLength = (method: string, body: string) =>
  `${method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`
const withChunks = (method: string, body: string) =>
  `${method} /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`

const METHODS: Readonly<Record<UnreadServerName, readonly string[]>> = {
  'http.server of Python': ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'PROPFIND', 'QUERY'],
  'HTTP::Daemon of Perl': ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'PROPFIND', 'QUERY'],
  webfs: ['GET', 'HEAD'],
}
const SERVERS = {
  'http.server of Python': await startUnreadServer('http.server of Python'),
  'HTTP::Daemon of Perl': await startUnreadServer('HTTP::Daemon of Perl'),
  webfs: await startUnreadServer('webfs'),
}

describe.each(Object.keys(METHODS) as UnreadServerName[])('%s, which reads no bodies', (name) => {
  it('finds a request in a body without the gateway', async () => {
    const { url, served } = SERVERS[name]
    await raw(Number(new URL(url).port), withLength('GET', WHOLE), (text) => statuses(text).length > 1)
    await until('the body is served', () => served().includes('GET /secret'))
    expect(served()).toContain('GET /x')
  })

  it('finds no request in a body of a method whose bodies have no meaning', async () => {
    const server = SERVERS[name]
    const { port } = await start(server.url)
    const before = server.served().length
    const lines: string[] = []
    for (const method of METHODS[name]) {
      for (const request of [
        withLength(method, WHOLE),
        withChunks(method, WHOLE),
        withLength(method, BEGUN),
      ]) {
        const { text } = await raw(port, request.repeat(2) + LAST)
        expect([method, statuses(text)]).toEqual([method, [200, 200, 200]])
        lines.push(`${method} /x`, `${method} /x`, 'GET /last')
      }
    }
    await until('all are logged', () => server.served().length >= before + lines.length)
    expect(server.served().slice(before)).toEqual(lines)
  })
})

/** Sends a request with a body and, at once after its response, another caller's; returns the bodies of the responses. */
async function bodiesOf(port: number, path: string, method: string, body: string): Promise<string[]> {
  const first = withLength(method, body).replace('/x', path)
  const { text } = await raw(port, (first + SECOND).repeat(10) + LAST)
  return [...text.matchAll(/\r\n\r\n(\/[a-z]+)/g)].map(([, one]) => one!)
}

const expected = (path: string) => [...Array.from({ length: 10 }, () => [path, '/last']).flat(), '/last']

describe.each(['http.server of Python', 'HTTP::Daemon of Perl'] as const)(
  '%s, which reads no body of POST',
  (name) => {
    it.each(['POST', 'PUT', 'PATCH'])(
      'gives no caller the answer to what it leaves unread of %s',
      async (method) => {
        const { port } = await start(SERVERS[name].url)
        expect(await bodiesOf(port, '/x', method, WHOLE)).toEqual(expected('/x'))
      },
    )

    it('gives no request to what begins in the body of one that it refuses', async () => {
      const { port } = await start(SERVERS[name].url)
      expect(await bodiesOf(port, '/refused', 'POST', BEGUN)).toEqual(expected('/refused'))
    })
  },
)

it('a connection is kept after a POST that is not refused, if nothing follows the response', async () => {
  let connections = 0
  const back = await startRawUpstream((socket, _, connection) => {
    connections = connection
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  })
  const { port } = await start(back.url, { maxConnections: 1 })
  for (let i = 0; i < 10; i++)
    expect((await call(port, { method: 'POST', path: '/x', body: 'a' })).status).toBe(200)
  expect(connections).toBe(1)
})

it('a connection is closed if its response ends before the body of the request was sent', async () => {
  let connections = 0
  const back = await startRawUpstream((socket, data, connection) => {
    connections = connection
    if (/^(?:POST|GET) /.test(data.toString('latin1', 0, 5)))
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    if (data.toString('latin1', 0, 5) === 'POST ') socket.pause()
  })
  const { port } = await start(back.url, { maxConnections: 1 })
  const body = Buffer.alloc(8_000_000)
  expect((await call(port, { method: 'POST', path: '/x', body })).status).toBe(200)
  expect((await call(port, { path: '/last' })).body).toBe('ok')
  expect(connections).toBe(2)
})
