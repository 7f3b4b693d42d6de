import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { beforeEach, describe, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { call, startGateway, yaml } from '../../helpers/gateway.ts'
import { serving } from '../../helpers/process.ts'
import { statuses } from '../../helpers/raw.ts'
import { FULL } from '../../helpers/runs.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const ROUTES = [{ match: '/*', upstream: 'data', authenticate: 'none' }]
const PAGE = 'x'.repeat(200_000)
/** A body longer than the kernel buffers for a caller that does not read. */
const LONG = 'x'.repeat(8_000_000)

/** Releases the responses that the upstream holds. */
let held: (() => void)[] = []
const folder = createFolder()
const back = await startUpstream((request, response) => {
  if (request.url === '/held') held.push(() => response.end(PAGE))
  else if (request.url === '/long') response.end(LONG)
  else response.end(request.url === '/page' ? PAGE : request.url)
})
const { cert, key } = makeCertificate()
writeFileSync(join(folder, 'cert.pem'), cert)
writeFileSync(join(folder, 'key.pem'), key)
const tls = { tls: { cert: `${folder}/cert.pem`, key: `${folder}/key.pem` } }
const settings = { data: back.url, routes: ROUTES, upstream: { maxConnections: 4 } }
const plain = await startGateway(settings)
const secure = await startGateway({ ...settings, listen: tls })
beforeEach(() => {
  held = []
  back.seen.length = 0
})

const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
/** Opens a caller that sends all this, and then waits. */
function caller(bytes: string, isSecure = false) {
  const socket = isSecure
    ? connectTls({ port: secure.port, host: '127.0.0.1', rejectUnauthorized: false })
    : connectTcp({ port: plain.port, host: '127.0.0.1' })
  closeLater(() => socket.destroy())
  let said = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
  socket.write(bytes)
  return { socket, said: () => said, ended: () => until('the socket ends', () => socket.closed) }
}
/** Returns the echoed paths, in order. */
const echoed = (said: string) => [...said.matchAll(/\/n\d+/g)].map(([path]) => path)

describe('pipelined requests', () => {
  it.each([
    ['garbage', 400, 'garbage\r\n\r\n'],
    ['a head that is too large', 431, get('/large', `X: ${'x'.repeat(20_000)}\r\n`)],
  ])('pipelined requests are all answered before %s is refused', async (_, refusal, garbage) => {
    const { said, ended } = caller(get('/held') + get('/n1') + get('/n2') + garbage)
    await until('the first is in flight', () => held.length === 1)
    held[0]!()
    await ended()
    expect(statuses(said())).toEqual([200, 200, 200, refusal])
    expect(echoed(said())).toEqual(['/n1', '/n2'])
    // Only the last response has it.
    expect(said().match(/Connection: close/g)).toHaveLength(1)
    expect(said().indexOf('Connection: close')).toBeGreaterThan(said().indexOf('/n1'))
  })

  it('pipelined requests are all answered if garbage arrives during the first response', async () => {
    const { socket, said, ended } = caller(get('/held'))
    await until('the first is in flight', () => held.length === 1)
    socket.write(`${get('/n1')}garbage\r\n\r\n`)
    socket.write('garbage\r\n\r\n')
    await new Promise((resolve) => setTimeout(resolve, 50))
    held[0]!()
    await ended()
    expect(statuses(said())).toEqual([200, 200, 400])
    expect(echoed(said())).toEqual(['/n1'])
  })

  it('pipelined requests are answered before one whose body is malformed, which is refused', async () => {
    const broken = 'POST /n2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'
    const { said, ended } = caller(get('/held') + get('/n1') + broken)
    await until('the first is in flight', () => held.length === 1)
    held[0]!()
    await ended()
    expect(statuses(said())).toEqual([200, 200, 400])
    expect(back.seen.map(({ url }) => url)).toEqual(['/held', '/n1'])
  })

  it('pipelined requests are answered before a CONNECT is refused', async () => {
    const { said, ended } = caller(
      `${get('/held')}${get('/n1')}CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n`,
    )
    await until('the first is in flight', () => held.length === 1)
    held[0]!()
    await ended()
    expect(statuses(said())).toEqual([200, 200, 405])
  })

  it('followed by a CONNECT do no harm if the caller resets the socket', async () => {
    const { socket } = caller(`${get('/held')}CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n`)
    await until('the first is in flight', () => held.length === 1)
    socket.resetAndDestroy()
    held[0]!()
    const next = caller(get('/n1', 'Connection: close\r\n'))
    await next.ended()
    expect(statuses(next.said())).toEqual([200])
  })

  it.each([
    ['', false],
    [' over TLS', true],
  ])('pipelined requests are all answered%s if 540 are sent at once', async (_, isSecure) => {
    const padding = `X: ${'x'.repeat(12_000)}\r\n`
    // More than may wait at a time, some of them with responses that are read slowly.
    const paths = Array.from({ length: 540 }, (__, i) => (i % 20 === 0 ? '/page' : `/n${i}`))
    const { said } = caller(get('/held') + paths.map((path) => get(path, padding)).join(''), isSecure)
    await until('the first is in flight', () => held.length === 1)
    await new Promise((resolve) => setTimeout(resolve, 100))
    held[0]!()
    await until('the last answer', () => said().endsWith(paths.at(-1)!))
    expect(echoed(said())).toEqual(paths.filter((path) => path !== '/page'))
    expect(statuses(said())).toHaveLength(paths.length + 1)
  })

  it('close their socket if there are more than 64', async () => {
    const { said, ended } = caller(get('/held') + get('/n1').repeat(64))
    await ended()
    expect(said()).toBe('')
    const most = caller(get('/held') + get('/n1').repeat(63))
    await until('all are answered', () => {
      for (const answer of held.splice(0)) answer()
      return statuses(most.said()).length === 64
    })
  })

  it('close their socket while too many of all sockets are pending', async () => {
    const all = Array.from({ length: 20 }, () => caller(get('/held') + get('/n1').repeat(59)))
    const open = () => all.filter(({ socket }) => !socket.closed)
    // 16 times 59 are 944, and the next socket sends more than 1000.
    await until('four are closed', () => open().length === 16)
    await until('the others are answered', () => {
      for (const answer of held.splice(0)) answer()
      return open().every(({ said }) => statuses(said()).length === 60)
    })
    expect(open()).toHaveLength(16)
    const next = caller(get('/n1') + get('/n2'))
    await until('both are answered', () => statuses(next.said()).length === 2)
  })

  it.runIf(FULL)('use little memory, and delay no other caller', async () => {
    const gateway = await serving(yaml({ data: back.url, routes: ROUTES }))
    const flood = Array.from({ length: 300 }, () => connectTcp({ port: gateway.port, host: '127.0.0.1' }))
    for (const socket of flood) socket.on('error', () => {}).resume()
    await Promise.all(flood.map((socket) => once(socket, 'connect')))
    const memory = () => {
      const status = readFileSync(`/proc/${gateway.child.pid}/status`, 'utf8')
      return Number(/^VmHWM:\s+(\d+)/m.exec(status)![1]) / 1024
    }
    const before = memory()
    for (const socket of flood) socket.write(get('/n1').repeat(2000))
    expect((await call(gateway.port, { path: '/n2' })).status).toBe(200)
    await until('all are closed', () => flood.every(({ closed }) => closed))
    // 2 kB for each request would be 1200 MB.
    expect(memory() - before).toBeLessThan(150)
  })

  it.each([
    ['', false],
    [' over TLS', true],
  ])('pipelined requests are all answered%s if their caller reads late', async (_, isSecure) => {
    const { socket, said } = caller(get('/long'), isSecure)
    socket.pause()
    await until('the first is in flight', () => back.seen.length === 1)
    await new Promise((resolve) => setTimeout(resolve, 200))
    const bodies = Array.from({ length: 15 }, (__, i) => `${i}.`.repeat(5000))
    const post = (body: string, i: number) =>
      `POST /n${i} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    socket.write(bodies.map(post).join(''))
    await new Promise((resolve) => setTimeout(resolve, 100))
    socket.resume()
    await until('the last answer', () => said().endsWith('/n14'))
    expect(echoed(said())).toEqual(bodies.map((__, i) => `/n${i}`))
    expect(back.seen.slice(1).map(({ body }) => body.toString())).toEqual(bodies)
  })
})
