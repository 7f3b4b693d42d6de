import { connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { ASKING, type AskingProxy, startAsking } from '../helpers/asking-proxies.ts'
import { startGateway } from '../helpers/gateway.ts'
import { startIgnoringBackend } from '../helpers/ignoring-backend.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const BODILESS = ['GET', 'HEAD', 'DELETE', 'OPTIONS']
const METHODS = [...BODILESS, 'POST', 'PUT', 'PATCH']
/** A request that the gateway would refuse, as the body of one that it lets pass. */
const SMUGGLED = 'GET /v3/secret HTTP/1.1\r\nHost: a\r\n\r\n'
const HOST = 'api.example.com'

type Send = (port: number, method: string, path: string) => Promise<number>

/** Sends over HTTP/2, as a browser would. `pausesMs` are the times before the parts of the body. */
const http2 =
  (fields: Record<string, string>, pausesMs: readonly number[], trailers?: Record<string, string>): Send =>
  async (port, method, path) => {
    const client = connectHttp2(`https://127.0.0.1:${port}`, {
      rejectUnauthorized: false,
      servername: 'localhost',
    })
    client.on('error', () => {})
    const head = { ':method': method, ':path': path, ':authority': HOST, ...fields }
    const stream = client.request(head, { endStream: false, waitForTrailers: trailers !== undefined })
    stream.on('error', () => {})
    if (trailers !== undefined) stream.on('wantTrailers', () => stream.sendTrailers(trailers))
    const status = new Promise<number>((resolve) => {
      stream.on('response', (got) => resolve(Number(got[':status'])))
      stream.on('close', () => resolve(0))
    })
    const size = Math.ceil(SMUGGLED.length / Math.max(1, pausesMs.length))
    for (const [i, pauseMs] of pausesMs.entries()) {
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs))
      if (!stream.destroyed) stream.write(SMUGGLED.slice(i * size, (i + 1) * size))
    }
    stream.end()
    stream.resume()
    const got = await status
    client.destroy()
    return got
  }

/** Sends over HTTP/1.1. */
const http1 =
  (field: string, body: string): Send =>
  (port, method, path) =>
    new Promise((resolve) => {
      const socket = connectTls({
        port,
        host: '127.0.0.1',
        rejectUnauthorized: false,
        servername: 'localhost',
      })
      socket.on('error', () => {})
      socket.on('close', () => resolve(0))
      socket.on('data', (data: Buffer) => {
        resolve(Number(data.toString().split(' ')[1]))
        socket.destroy()
      })
      socket.write(`${method} ${path} HTTP/1.1\r\nHost: ${HOST}\r\n${field}\r\n\r\n${body}`)
    })

const CHUNKED = `${SMUGGLED.length.toString(16)}\r\n${SMUGGLED}\r\n0\r\n\r\n`
const WAYS: Readonly<Record<string, Send>> = {
  'HTTP/1.1 with a length': http1(`Content-Length: ${SMUGGLED.length}`, SMUGGLED),
  'HTTP/1.1 in chunks': http1('Transfer-Encoding: chunked', CHUNKED),
  'HTTP/2 with a length': http2({ 'content-length': String(SMUGGLED.length) }, [0]),
  'HTTP/2 without a length': http2({}, [0]),
  'HTTP/2 in several frames': http2({}, [0, 20, 20]),
  'HTTP/2 with a late body': http2({}, [300]),
  'HTTP/2 with a body that is later than any wait': http2({}, [1200]),
  'HTTP/2 with trailers and no body': http2({}, [], {
    get: '/v3/secret HTTP/1.1',
    'x-a': SMUGGLED.slice(0, 20),
  }),
}

/** nginx reads a whole body before it forwards it. */
const STREAMING = ['caddy', 'haproxy'] as const

let backend: Awaited<ReturnType<typeof startIgnoringBackend>>
let gateway: Awaited<ReturnType<typeof startGateway>>

async function start(from: AskingProxy) {
  gateway = await startGateway({
    data: 'http://unused.internal',
    routes: [
      { match: '/open/*', authenticate: 'none' },
      { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
    ],
    more: { forwardAuth: { port: 0, from } },
  })
}

describe.each(Object.keys(ASKING) as AskingProxy[])('%s with TLS and HTTP/2 that asks', (from) => {
  let proxy: Awaited<ReturnType<typeof startAsking>>
  beforeAll(async () => {
    backend = await startIgnoringBackend()
    await start(from)
    proxy = await startAsking(from, [gateway], backend.port, { tls: true })
  })
  beforeEach(() => void (backend.served.length = 0))

  it.each(Object.keys(WAYS))('has no body served as a request, %s', async (way) => {
    const paths = METHODS.map((method) => `/open/${method}`)
    const got = await Promise.all(METHODS.map((method, i) => WAYS[way]!(proxy.port, method, paths[i]!)))
    // Requests that were served after a first one on its connection.
    for (const method of METHODS)
      await WAYS['HTTP/1.1 in chunks']!(proxy.port, 'POST', `/open/after-${method}`)
    expect(backend.served.filter(({ target }) => !target.startsWith('/open/'))).toEqual([])
    for (const [i, method] of METHODS.entries()) {
      const served = backend.served.find(({ target }) => target === paths[i])
      if (BODILESS.includes(method) || way.includes('no body')) expect(served?.body ?? '').toBe('')
      else expect([got[i], served?.body]).toEqual([200, SMUGGLED])
    }
  })
})

it.each(STREAMING)('%s that asks forwards the body of a POST while it comes', async (from) => {
  await start(from)
  let arrived = ''
  const slow = await startRawUpstream((socket, data) => {
    arrived += data.toString()
    if (arrived.endsWith('0\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  })
  const proxy = await startAsking(from, [gateway], slow.port)
  const socket = connect(proxy.port, '127.0.0.1')
  const answer = new Promise<string>((resolve) => socket.once('data', (data) => resolve(data.toString())))
  socket.write(`POST /open/a HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n`)
  await until('the first part arrives', () => arrived.includes('first'))
  socket.write('4\r\nlast\r\n0\r\n\r\n')
  expect(await answer).toMatch(/^HTTP\/1\.1 200 /)
  expect(arrived).toContain('last')
  socket.destroy()
  proxy.close()
  await gateway.close()
  await slow.close()
})
