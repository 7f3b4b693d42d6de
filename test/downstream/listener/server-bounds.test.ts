import { writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { connect as connectTcp, type Socket } from 'node:net'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { drain, loads } from '../../../src/downstream/listener/drain.ts'
import { createListener, listen } from '../../../src/downstream/listener/server.ts'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { call, startGateway, type TestGateway } from '../../helpers/gateway.ts'
import { answered, statuses } from '../../helpers/raw.ts'
import { SILENT } from '../../helpers/listener.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const SMALL = { maxHeaderSize: '4kB', headersTimeout: '1s', requestTimeout: '1s', keepAliveTimeout: '300ms' }
const ROUTES = [
  { match: '/oidc/held', upstream: 'identity', authenticate: 'none', timeout: '1m' },
  { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
]
const BOUNDS = {
  maxHeaderSize: 4096,
  headersTimeoutMs: 500,
  requestTimeoutMs: 500,
  keepAliveTimeoutMs: 300,
  maxConnections: 10,
  maxConnectionsPerAddress: 10,
}
const GET = 'GET /oidc/x HTTP/1.1\r\nHost: a\r\n'

const folder = createFolder()
const { cert, key } = makeCertificate()
writeFileSync(join(folder, 'cert.pem'), cert)
writeFileSync(join(folder, 'key.pem'), key)
const back = await startUpstream((request, response) => {
  if (request.url !== '/oidc/held') response.end('{}')
})
const settings = { data: back.url, routes: ROUTES }
const plain = await startGateway({ ...settings, listen: SMALL })
const tls = { tls: { cert: `${folder}/cert.pem`, key: `${folder}/key.pem` } }
const secure = await startGateway({ ...settings, listen: { ...SMALL, ...tls } })

interface Caller {
  readonly socket: Socket
  said(): string
}
function caller({ port }: Pick<TestGateway, 'port'>): Caller {
  const socket = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true })
  closeLater(() => socket.destroy())
  let said = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
  return { socket, said: () => said }
}
/** Waits until the gateway has closed its side of the socket. */
async function closed({ socket }: Caller): Promise<void> {
  await until('the socket is closed', () => socket.readableEnded || socket.destroyed)
}
/** Sends a text repeatedly, a piece at a time. */
function drip({ socket }: Caller, text: string, everyMs = 50): void {
  const timer = setInterval(() => socket.write(text), everyMs)
  socket.once('close', () => clearInterval(timer))
}
const fields = (count: number, name: string) =>
  Array.from({ length: count }, (_, i) => `${name}${i}: x\r\n`).join('')
const counted = async (code: number): Promise<number> => {
  const { body } = await call(plain.adminPort, { path: '/metrics' })
  const series = new RegExp(
    `^sluice_http_requests_total\\{.*code="${code}",source="gateway".*\\} (\\d+)$`,
    'gm',
  )
  return [...body.matchAll(series)].reduce((sum, [, count]) => sum + Number(count), 0)
}

describe.concurrent('a caller', () => {
  it.each<[string, string, (caller: Caller) => void, number[]]>([
    [
      'a head that is too large',
      '431',
      ({ socket }) => socket.write(`${GET}A: ${'x'.repeat(5000)}\r\n\r\n`),
      [431],
    ],
    ['too many fields', '431', ({ socket }) => socket.write(`${GET}${fields(201, 'A')}\r\n`), [431]],
    [
      'a target that is too long',
      '431',
      ({ socket }) => socket.write(`GET /${'x'.repeat(5000)} HTTP/1.1\r\n`),
      [431],
    ],
    [
      'trailers that are too large',
      '431',
      ({ socket }) =>
        socket.write(
          `POST /oidc/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${fields(600, 'Trailer')}\r\n`,
        ),
      [431],
    ],
    ['nothing', '408', () => {}, [408]],
    ['a head that does not end', '408', (caller) => (caller.socket.write(GET), drip(caller, 'A')), [408]],
    [
      'a body that does not end',
      '408',
      ({ socket }) => socket.write('POST /oidc/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\nA'),
      [408],
    ],
    [
      'chunks that do not end',
      '408',
      ({ socket }) =>
        socket.write('POST /oidc/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n'),
      [408],
    ],
    ['the preface of HTTP/2', '400', ({ socket }) => socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), [400]],
    [
      'more requests than may wait',
      '400',
      ({ socket }) => socket.write(`GET /oidc/held HTTP/1.1\r\nHost: a\r\n\r\n${`${GET}\r\n`.repeat(501)}`),
      [],
    ],
    ['one request and no more', '-', ({ socket }) => socket.write(`${GET}\r\n`), [200]],
  ])('a caller that sends %s gets %s, and its socket is closed', async (_, code, send, expected) => {
    const before = code === '-' ? 0 : await counted(Number(code))
    const one = caller(plain)
    send(one)
    await closed(one)
    expect(statuses(one.said())).toEqual(expected)
    if (code !== '-') await until('it is counted', async () => (await counted(Number(code))) > before)
  })

  it('a caller that sends the maximum number of fields is served', async () => {
    const one = caller(plain)
    one.socket.write(`${GET}${fields(199, 'A')}\r\n`)
    await closed(one)
    expect(statuses(one.said())).toEqual([200])
  })

  it('a caller that does not read its response times out', async () => {
    let timedOut = false
    const server = createListener(
      (response, _, done) => {
        response.end(Buffer.alloc(20_000_000))
        response.once('close', () => {
          timedOut = true
          done()
        })
      },
      { ...BOUNDS, slowReaderMs: 1000 },
      SILENT,
    )
    const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
    const socket = connectTcp({ port, host: '127.0.0.1' }).on('error', () => {})
    closeLater(() => socket.destroy())
    socket.pause()
    socket.write(`${GET}\r\n`)
    await until('its socket is closed', () => timedOut)
    expect(await drain(server, 0)).toBe(0)
  })

  it('a caller that pauses before each of two equal responses gets both', async () => {
    const answer = Buffer.alloc(20_000_000)
    const server = createListener(
      (response, _, done) => {
        response.end(answer)
        response.once('close', done)
      },
      { ...BOUNDS, slowReaderMs: 3000 },
      SILENT,
    )
    const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
    const socket = connectTcp({ port, host: '127.0.0.1' }).on('error', () => {})
    closeLater(() => socket.destroy())
    let [bytes, wanted] = [0, 0]
    socket.pause()
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes >= wanted) socket.pause()
    })
    const read = async (length: number): Promise<void> => {
      await sleep(1750)
      wanted = length
      socket.resume()
      await until('it is read', () => bytes >= length || socket.destroyed)
    }
    socket.write(`${GET}\r\n`.repeat(2))
    await read(answer.length + 500)
    await read(2 * answer.length)
    expect(bytes).toBeGreaterThan(2 * answer.length)
    socket.destroy()
    expect(await drain(server, 0)).toBe(0)
  })

  it('a caller that completes its next head too late is refused after its responses, and counted', async () => {
    const begun: ServerResponse[] = []
    let refused = false
    const server = createListener(
      (response, _, done) => {
        begun.push(response)
        response.once('close', done)
      },
      BOUNDS,
      { ...SILENT, unreadable: () => (refused = true) },
    )
    const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
    let timedOut = false
    server.once('clientError', () => (timedOut = true))
    const one = caller({ port })
    one.socket.write(`${GET}\r\n${GET}`)
    await until('its time is over', () => timedOut)
    one.socket.write('\r\n')
    await until('the rest is read', () => loads.get(server)!.requests() === 2)
    begun[0]!.end('ok')
    await closed(one)
    expect(statuses(one.said())).toEqual([200, 408])
    expect(refused).toBe(true)
    await until('nothing is in flight', () => loads.get(server)!.requests() === 0)
    expect(begun).toHaveLength(1)
    expect(await drain(server, 0)).toBe(0)
  })

  it('a caller that waits for a slow upstream is not disconnected', async () => {
    const one = caller(plain)
    one.socket.write('GET /oidc/held HTTP/1.1\r\nHost: a\r\n\r\n')
    await until('the upstream is asked', () => back.seen.some(({ url }) => url === '/oidc/held'))
    const later = caller(plain)
    later.socket.write(GET)
    await closed(later)
    expect(statuses(later.said())).toEqual([408])
    expect(one.socket.readableEnded || one.socket.destroyed).toBe(false)
    one.socket.destroy()
  })

  it('a caller that sends no TLS, or disconnects during the handshake, is closed and logged with its address', async () => {
    const failures: string[][] = []
    const { cert, key } = makeCertificate()
    const tls = { cert, key, clientCa: undefined, requestClientCert: false }
    const events = { ...SILENT, insecure: (...told: string[]) => void failures.push(told) }
    const server = createListener(() => {}, BOUNDS, events, tls)
    const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
    const leaving = connectTcp({ port, host: '127.0.0.1' }, () => leaving.resetAndDestroy())
    await until('it left', () => failures.length === 1)
    expect(failures.splice(0)).toEqual([['127.0.0.1', 'ECONNRESET']])
    await closed(caller({ port }))
    expect(failures).toEqual([['127.0.0.1', 'ERR_TLS_HANDSHAKE_TIMEOUT']])
    await drain(server, 0)
  })

  it('a caller that offers only HTTP/2 over TLS gets an ALPN alert', async () => {
    const outcome = await new Promise((resolve) => {
      const socket = connectTls({
        port: secure.port,
        host: '127.0.0.1',
        rejectUnauthorized: false,
        ALPNProtocols: ['h2'],
      })
      socket.on('secureConnect', () => resolve(socket.alpnProtocol))
      socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
    })
    expect(outcome).toBe('ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL')
  })

  it('a caller that offers HTTP/2 and HTTP/1.1 over TLS is served HTTP/1.1', async () => {
    const socket = connectTls({
      port: secure.port,
      host: '127.0.0.1',
      rejectUnauthorized: false,
      ALPNProtocols: ['h2', 'http/1.1'],
    })
    closeLater(() => socket.destroy())
    let said = ''
    socket.on('data', (chunk: Buffer) => (said += chunk.toString()))
    socket.write(`${GET}\r\n`)
    await until('an answer', () => answered(said))
    expect(socket.alpnProtocol).toBe('http/1.1')
    expect(statuses(said)).toEqual([200])
  })
})
