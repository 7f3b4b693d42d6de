import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { onBodyAborted } from '../../../src/downstream/body.ts'
import { drain } from '../../../src/downstream/listener/drain.ts'
import { type Bounds, createListener, listen } from '../../../src/downstream/listener/server.ts'
import { closeLater } from '../../helpers/closing.ts'
import { startGateway } from '../../helpers/gateway.ts'
import { SILENT } from '../../helpers/listener.ts'
import { answered, statuses } from '../../helpers/raw.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const TIMES = { requestTimeout: '2s', headersTimeout: '2s' }
const ROUTES = [{ match: '/*', upstream: 'data', authenticate: 'none', timeout: '1m' }]
const BOUNDS: Bounds = {
  maxHeaderSize: 4096,
  headersTimeoutMs: 1000,
  requestTimeoutMs: 1000,
  keepAliveTimeoutMs: 1000,
  maxConnections: 10,
  maxConnectionsPerAddress: 10,
  slowUploadMs: 2000,
}
const post = (length: number, path = '/oidc/x') =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`

function open(port: number): { readonly socket: Socket; said(): string } {
  const socket = connect(port, '127.0.0.1')
  closeLater(() => socket.destroy())
  let said = ''
  socket.on('error', () => {})
  socket.on('data', (chunk: Buffer) => (said += chunk.toString('latin1')))
  return { socket, said: () => said }
}
/** Sends pieces, one each 250 ms. */
async function sendPieces(socket: Socket, piece: string, count: number): Promise<void> {
  for (let i = 0; i < count && !socket.destroyed; i++) {
    socket.write(piece)
    await sleep(250)
  }
}
/** Starts a listener that reads bodies, and calls `aborted` when one is aborted. */
async function startReading(aborted: (code: string) => void): Promise<number> {
  const server = createListener(
    (response, _, done) => {
      response.req.on('data', () => {}).on('end', () => response.end('ok'))
      onBodyAborted(response.req, ({ code }) => {
        aborted(code)
        response.destroy()
      })
      response.once('close', done)
    },
    BOUNDS,
    SILENT,
  )
  closeLater(() => drain(server, 0))
  return Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
}

describe.concurrent('an upload', () => {
  it.each([
    ['with a length', post(120_000), 'x'.repeat(10_000), ''],
    [
      'in chunks',
      'POST /oidc/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n',
      `2710\r\n${'x'.repeat(10_000)}\r\n`,
      '0\r\n\r\n',
    ],
  ])('%s may take longer than requestTimeout', async (_, head, piece, end) => {
    const back = await startUpstream()
    const { port } = await startGateway({ data: back.url, listen: TIMES, routes: ROUTES })
    const { socket, said } = open(port)
    socket.write(head)
    await sendPieces(socket, piece, 12)
    socket.write(end)
    await until('the response', () => answered(said()))
    expect(statuses(said())).toEqual([200])
    expect(back.seen[0]!.body).toHaveLength(120_000)
  })

  it('that the upstream does not read is not silent', async () => {
    const bytes = 9_000_000
    let received = 0
    const back = await startUpstream(undefined, (request, response) => {
      setTimeout(() => {
        request.on('data', (chunk: Buffer) => (received += chunk.length))
        request.on('end', () => response.end('{}'))
      }, 3500)
    })
    const { port } = await startGateway({ data: back.url, listen: TIMES, routes: ROUTES })
    const { socket, said } = open(port)
    socket.write(post(bytes) + 'x'.repeat(bytes))
    await until('the response', () => answered(said()))
    expect(statuses(said())).toEqual([200])
    expect(received).toBe(bytes)
  })

  it('behind a request whose response is slow is not silent', async () => {
    const back = await startUpstream((request, response) => {
      if (request.url === '/oidc/slow') setTimeout(() => response.end('{}'), 3500)
      else response.end('{}')
    })
    const { port } = await startGateway({ data: back.url, listen: TIMES, routes: ROUTES })
    const { socket, said } = open(port)
    socket.write(`GET /oidc/slow HTTP/1.1\r\nHost: a\r\n\r\n${post(4)}xx`)
    await until('the first response', () => answered(said()))
    socket.write('xx')
    await until('both responses', () => statuses(said()).length === 2)
    expect(statuses(said())).toEqual([200, 200])
  })

  it('of less than 4 kB a second is aborted after a time', async () => {
    const codes: string[] = []
    const port = await startReading((code) => codes.push(code))
    const { socket } = open(port)
    socket.write(post(9_000_000))
    await sendPieces(socket, 'x'.repeat(500), 40)
    expect(codes).toEqual(['RequestTimeout'])
  })

  it('of more than 4 kB a second is not aborted', async () => {
    const codes: string[] = []
    const port = await startReading((code) => codes.push(code))
    const { socket, said } = open(port)
    socket.write(post(50_000))
    await sendPieces(socket, 'x'.repeat(2500), 20)
    await until('the response', () => answered(said()))
    expect(statuses(said())).toEqual([200])
    expect(codes).toEqual([])
  })
})
