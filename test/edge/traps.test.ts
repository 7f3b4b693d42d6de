import { once } from 'node:events'
import util from 'node:util'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startFront } from '../helpers/front.ts'
import { call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { type RawUpstream, startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { startStrictUpstream, type StrictUpstream } from './strict-upstream.ts'

const words = (list: string): readonly string[] => list.trim().split(/\s+/)

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const drip = (socket: Socket, text: string): void => {
  const timer = setInterval(() => socket.write(text), 50)
  socket.on('close', () => clearInterval(timer))
}
/** Responses of an upstream, by the last segment of the path. */
const TALK: Readonly<Record<string, (socket: Socket) => void>> = {
  ok: (socket) => socket.write(OK),
  silent: () => {},
  trailer: (socket) => socket.write('HTTP/1.1 200 OK\r\nTrailer: X\r\nContent-Length: 2\r\n\r\nok'),
  reason: (socket) => socket.write('HTTP/1.1 200 O\u0001K\r\nContent-Length: 2\r\n\r\nok'),
  hop: (socket) =>
    socket.write(
      'HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok',
    ),
  switch: (socket) =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
  'byte-by-byte': (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nX: ')
    drip(socket, 'x')
  },
  interim: (socket) => drip(socket, 'HTTP/1.1 102 Processing\r\n\r\n'),
  cut: (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart'),
  'cut-chunks': (socket) => socket.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n'),
  stall: (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart'),
  'bad-chunk': (socket) => {
    socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n')
    setTimeout(() => socket.write('zz\r\n'), 50)
  },
}

let strict: StrictUpstream
let odd: RawUpstream
const heads: string[] = []
let gateway: TestGateway
beforeAll(async () => {
  strict = await startStrictUpstream()
  odd = await startRawUpstream((socket, first) => {
    heads.push(first.toString())
    TALK[/\/([\w-]+) HTTP/.exec(first.toString())?.[1] ?? '']?.(socket)
  })
  gateway = await startGateway({
    data: odd.url,
    identity: strict.url,
    routes: `routes:
  - { match: "/patient/*", upstream: data, authenticate: none, timeout: 60s }
  - { match: "/odd/*", upstream: data, authenticate: none, timeout: 300ms }
  - { match: "/*", upstream: identity, authenticate: none }`,
    limits: 'limits: {}',
    tokens: '',
  })
})
afterAll(async () => {
  await gateway.close()
  await strict.close()
  await odd.close()
})

const odds = (path: string, line = 'GET') =>
  raw(gateway.port, `${line} /odd/${path} HTTP/1.1\r\nHost: a\r\n\r\n`, answered)
const HIDDEN = 'GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n'

describe('the defects of http-proxy, through a gateway', () => {
  it.each(['DELETE', 'OPTIONS'])(
    '1: a chunked %s hides no second request (CVE-2026-29057)',
    async (method) => {
      const chunk = `${HIDDEN.length.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`
      const bytes = `${method} /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}`
      expect(statuses((await raw(gateway.port, bytes)).text)).toEqual([400])
      // A forwarded body would be forwarded completely.
      const front = await startFront(strict.url, {}, { bodyLength: undefined })
      await raw(front.port, bytes, answered)
      await front.close()
      const bodies = strict.requests.filter(({ line }) => line === `${method} /x`).map(({ body }) => body)
      expect(bodies).toEqual([HIDDEN])
      expect(strict.requests.map(({ line }) => line)).not.toContain('GET /hidden')
    },
  )

  it.each([
    ['GET', ''],
    ['POST', 'Content-Length: 2\r\n'],
  ])('2: a Trailer on a %s without chunks does not end the process', async (method, length) => {
    const bytes = `${method} /trailer HTTP/1.1\r\nHost: a\r\nTrailer: X\r\nTE: trailers\r\n${length}\r\n${length && 'hi'}`
    expect(statuses((await raw(gateway.port, bytes, answered)).text)).toEqual([200])
  })

  it('3: nor does a Trailer of the upstream, nor a control byte in its reason', async () => {
    const { text } = await odds('trailer')
    expect(statuses(text)).toEqual([200])
    expect(text).not.toMatch(/trailer/i)
    expect(statuses((await odds('reason')).text)).toEqual([200])
  })

  it.each(
    words(String.raw`
    http://[::1/x //%zz@b/ //[ http://a:99999/ /% http:// // /\[ ? http://a\b
  `),
  )('4: the target %s, at which parsers throw, is refused', async (target) => {
    const { text } = await raw(gateway.port, `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`, answered)
    expect(statuses(text)).toEqual([400])
  })

  it('5: the path that was matched is forwarded', async () => {
    for (const target of ['//sync/x', '/\\sync/x', '/sync//x', '/sync/x//'])
      expect(
        statuses((await raw(gateway.port, `POST ${target} HTTP/1.1\r\nHost: a\r\n\r\n`, answered)).text),
      ).toEqual([400])
    for (const target of ['/http:/x', '/a/https:/b?c=http:/d//e', '/a?b=//../%2f;\\']) {
      await raw(gateway.port, `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`, answered)
      expect(strict.requests.at(-1)!.line).toBe(`GET ${target}`)
    }
  })

  it('6: an upstream is freed when its callers disconnect', async () => {
    const before = heads.length
    const kept = odd.sockets()
    const sockets = Array.from({ length: 10 }, (_, i) => {
      const socket = connect(gateway.port, '127.0.0.1').on('error', () => {})
      const [method, rest] = i % 2 ? ['POST', 'Content-Length: 2\r\n\r\nhi'] : ['GET', '\r\n']
      socket.write(`${method} /patient/silent HTTP/1.1\r\nHost: a\r\n${rest}`)
      return socket
    })
    await until('all are asked', () => heads.length === before + 10)
    for (const [i, socket] of sockets.entries()) void (i % 3 ? socket.destroy() : socket.resetAndDestroy())
    await until('none is asked any more', () => odd.sockets() <= kept)
    expect(heads).toHaveLength(before + 10)
  })

  it.each(['cut', 'cut-chunks', 'stall'])(
    '7: an answer that is broken off does not look whole: %s',
    async (path) => {
      const { text, closed } = await raw(gateway.port, `GET /odd/${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
      expect(closed).toBe(true)
      expect(statuses(text)).toEqual([200])
      expect(text).not.toContain('\r\n0\r\n')
    },
  )

  it('7: a truncated response to HTTP/1.0, which ends with the socket, is reset', async () => {
    const socket = connect(gateway.port, '127.0.0.1')
    socket.resume().write('GET /odd/cut-chunks HTTP/1.0\r\nHost: a\r\n\r\n')
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException]
    expect(error.code).toBe('ECONNRESET')
  })

  it.each(['silent', 'byte-by-byte', 'interim'])('8: an upstream that is %s times out', async (path) => {
    expect(statuses((await odds(path)).text)).toEqual([504])
  })

  it('9: no protocol is switched', async () => {
    expect(statuses((await odds('switch')).text)).toEqual([502])
    const { text } = await raw(
      gateway.port,
      'GET /odd/ok HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    )
    expect(statuses(text)).toEqual([200])
    expect(heads.at(-1)).not.toMatch(/upgrade/i)
  })

  it('10: an error after the head truncates the response, and sends no second one', async () => {
    const { text, closed } = await raw(gateway.port, 'GET /odd/bad-chunk HTTP/1.1\r\nHost: a\r\n\r\n')
    expect(closed).toBe(true)
    expect(statuses(text)).toEqual([200])
    expect(text).not.toContain('\r\n0\r\n')
  })

  it('11: fields are set for a request that expects 100-continue too', async () => {
    const head =
      'POST /expect HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n'
    expect(statuses((await raw(gateway.port, `${head}hi`, (text) => text.includes('ok\n'))).text)).toEqual([
      100, 200,
    ])
    const { fields, body } = strict.requests.findLast(({ line }) => line === 'POST /expect')!
    expect(body).toBe('hi')
    expect(fields.find(([name]) => name === 'x-forwarded-for')).toEqual(['x-forwarded-for', '127.0.0.1'])
  })

  it('12: hop-by-hop fields are removed, both ways', async () => {
    const { headers } = await call(gateway.port, {
      path: '/odd/hop',
      headers: { Connection: 'x-mine', 'X-Mine': '1', TE: 'trailers', 'Keep-Alive': 'timeout=1' },
    })
    for (const name of ['x-hop', 'proxy-connection', 'upgrade']) expect(headers).not.toHaveProperty(name)
    expect(heads.at(-1)).not.toMatch(/x-mine|te:|keep-alive:/i)
  })

  it('13: forwarded address and host fields of a caller are replaced, not extended', async () => {
    await call(gateway.port, {
      path: '/claims',
      headers: { 'X-Forwarded-For': '6.6.6.6', 'X-Forwarded-Host': 'evil.example' },
    })
    const { fields } = strict.requests.findLast(({ line }) => line === 'GET /claims')!
    expect(JSON.stringify(fields)).not.toMatch(/6\.6\.6\.6|evil/)
  })

  it('14: upstream sockets are reused', async () => {
    for (let i = 0; i < 5; i++) await call(gateway.port, { path: '/again' })
    expect(strict.sockets()).toBeLessThan(3)
  })

  it('15: http-proxy calls no deprecated function of Node', () => {
    const extend = (util as unknown as Record<string, unknown>)['_extend']
    expect(String(extend)).not.toContain('emitWarning')
  })

  it('16: the 502 for an unreachable upstream reveals no internal address or error', async () => {
    const gone = await startUpstream()
    await gone.close()
    const other = await startGateway({
      data: gone.url,
      routes: 'routes: [{ match: "/*", upstream: data, authenticate: none }]',
      limits: 'limits: {}',
      tokens: '',
    })
    const { status, body } = await call(other.port)
    await other.close()
    expect(status).toBe(502)
    expect(body).not.toMatch(/ECONN|127\.0\.0\.1|:\d{4}/)
  })

  it('the gateway still serves after all of them', async () => {
    expect((await call(gateway.port, { path: '/odd/ok' })).body).toBe('ok')
  })

  it('the upstream received nothing that two servers could parse differently', () => {
    expect(strict.flaws.filter((flaw) => !/a (?:DELETE|OPTIONS) with a body/.test(flaw))).toEqual([])
  })
})
