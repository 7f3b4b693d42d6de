import { describe, expect, it } from 'vitest'
import { get, startFront } from '../helpers/front.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { createServer as createTlsServer } from 'node:tls'
import type { Socket } from 'node:net'

const BODY = 'x'.repeat(5_000_000)
const REFUSAL = 'HTTP/1.1 413 Payload Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!'

/** Refuses an upload as many servers do: without reading it, so that the close resets the connection. */
function refuse(socket: Socket): void {
  socket.pause()
  socket.end(REFUSAL, () => socket.destroy())
}

async function upload(url: string, more: object = {}) {
  const downs: string[] = []
  const events = (address: string) => ({ onDown: () => void downs.push(address), onUp() {} })
  const front = await startFront(url, more, { maxBody: 10_000_000 }, events)
  const statuses: number[] = []
  for (let i = 0; i < 20; i++) {
    const { status } = await get(front.port, '/', { method: 'POST' }, BODY)
    statuses.push(status)
  }
  return { statuses, downs }
}

describe('an upstream that refuses uploads before it has read them', () => {
  it('has its responses forwarded, and is not down', async () => {
    const back = await startRawUpstream(refuse)
    expect(await upload(back.url)).toEqual({ statuses: Array(20).fill(413), downs: [] })
  })

  it('has its responses forwarded over TLS', async () => {
    const { cert, key } = makeCertificate('localhost')
    const server = createTlsServer({ cert, key }, (socket) => {
      socket.on('error', () => {}).once('data', () => refuse(socket))
    })
    const { port } = await listenLocally(server)
    const tls = { ca: cert, servername: undefined, cert: undefined, key: undefined }
    const { statuses, downs } = await upload(`https://localhost:${port}`, { tls })
    expect(statuses).toEqual(Array(20).fill(413))
    expect(downs).toEqual([])
  })

  it('gets 502s for its callers if it closes without a response, and is not down', async () => {
    const back = await startRawUpstream((socket) => socket.destroy())
    expect(await upload(back.url)).toEqual({ statuses: Array(20).fill(502), downs: [] })
  })
})
