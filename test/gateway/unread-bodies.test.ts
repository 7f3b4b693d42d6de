import { describe, expect, it } from 'vitest'
import { call, startGateway } from '../helpers/gateway.ts'
import { startIgnoringBackend } from '../helpers/ignoring-backend.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HIDDEN = 'GET /secret HTTP/1.1\r\nHost: a\r\n\r\n'
const backend = await startIgnoringBackend()
const gateway = await startGateway({
  data: backend.url,
  limits: {},
  routes: [
    { match: '/body/*', upstream: 'data', authenticate: 'none', body: true },
    { match: 'PROPFIND,m-search,QUERY /dav/*', upstream: 'data', authenticate: 'none' },
    { match: '/*', upstream: 'data', authenticate: 'none' },
  ],
})

const withLength = (line: string, more = '') =>
  `${line} HTTP/1.1\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n${more}\r\n${HIDDEN}`
const withChunks = (line: string, more = '') =>
  `${line} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n${more}\r\n${HIDDEN.length.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`
const last = 'GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

describe('a backend that does not read a body finds no request in it', () => {
  it.each(
    [
      'DELETE /x',
      'PROPFIND /dav/x',
      'M-SEARCH /dav/x',
      'QUERY /dav/x',
      'DELETE /body/x',
      'GET /body/x',
      'HEAD /body/x',
      'OPTIONS /body/x',
    ].flatMap((line) => [
      [line, 'a length', withLength(line)] as const,
      [line, 'chunks', withChunks(line)] as const,
    ]),
  )('of %s with %s, also with pipelined requests', async (line, _, request) => {
    const before = backend.served.length
    const { text } = await raw(gateway.port, request.repeat(3) + last)
    expect(statuses(text)).toEqual([200, 200, 200, 200])
    const [method, target] = line.split(' ')
    const served = backend.served.slice(before).map((one) => [one.method, one.target])
    expect(served).toEqual([
      [method, target],
      [method, target],
      [method, target],
      ['GET', '/last'],
    ])
  })

  it('and no other caller gets its connection', async () => {
    const before = backend.served.length
    const slow = raw(gateway.port, withLength('DELETE /x', 'Connection: close\r\n'))
    const others = Array.from({ length: 8 }, () => raw(gateway.port, last))
    const ends = await Promise.all([slow, ...others])
    expect(ends.flatMap(({ text }) => statuses(text))).toEqual(Array.from({ length: 9 }, () => 200))
    await until('nine requests', () => backend.served.length === before + 9)
    expect(backend.served.slice(before).filter(({ target }) => target === '/secret')).toEqual([])
  })
})

it.each(['GET', 'HEAD', 'DELETE', 'OPTIONS'])(
  'an empty chunked body of %s is forwarded as none',
  async (method) => {
    const head = `${method} /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`
    const { text } = await raw(gateway.port, `${head}0\r\n\r\n${last}`)
    expect(statuses(text)).toEqual([200, 200])
    expect(backend.served.at(-2)).toEqual({ method, target: '/x', body: '' })
  },
)

it.each(['GET', 'HEAD', 'OPTIONS'])('a body of %s gets a 400 without "body: true"', async (method) => {
  for (const request of [withLength(`${method} /x`), withChunks(`${method} /x`)]) {
    const before = backend.served.length
    const { text, closed } = await raw(gateway.port, request + last)
    expect([statuses(text), closed, backend.served.length]).toEqual([[400], true, before])
  }
})

describe('a method beyond the seven', () => {
  it('is forwarded with its body by a route that names it', async () => {
    const back = await startUpstream()
    const { port } = await startGateway({
      data: back.url,
      limits: {},
      routes: [
        {
          match: 'PROPFIND,MKCOL,REPORT,PURGE,QUERY,M-SEARCH /dav/*',
          upstream: 'data',
          authenticate: 'none',
        },
        { match: '/*', upstream: 'data', authenticate: 'none' },
      ],
    })
    const body = '<propfind xmlns="DAV:"/>'
    for (const method of ['PROPFIND', 'MKCOL', 'REPORT', 'PURGE', 'QUERY', 'M-SEARCH']) {
      expect((await call(port, { method, path: '/dav/x', body })).status).toBe(200)
      expect(back.seen.at(-1)).toMatchObject({ method, url: '/dav/x', body: Buffer.from(body) })
      expect((await call(port, { method, path: '/dav/x' })).status).toBe(200)
      expect(back.seen.at(-1)!.body).toHaveLength(0)
    }
    const other = await call(port, { method: 'PROPFIND', path: '/other' })
    expect(other.status).toBe(405)
    expect(other.headers.allow).toBe('DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT')
    expect((await call(port, { method: 'LOCK', path: '/dav/x' })).status).toBe(405)
    expect((await call(port, { method: 'TRACE', path: '/dav/x' })).status).toBe(405)
  })
})
